select json_build_object('order_id', order_id, 'line_no', line_no, 'sku', sku, 'qty', qty,
  'unit_price', unit_price, 'weight', weight)
from order_lines order by order_id, line_no;
