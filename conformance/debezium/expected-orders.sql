select json_build_object('id', id, 'customer_id', customer_id, 'status', status, 'total', total,
  'placed_at', to_char(placed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
  'shipped_on', shipped_on::text, 'note', note)
from orders order by id;
