select json_build_object('id', id, 'name', name, 'email', email, 'vip', vip, 'credit', credit,
  'born', born::text, 'phones', phones, 'address', address::text, 'about', about,
  'created_at', to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
from customers order by id;
