create type order_status as enum ('new', 'paid', 'shipped', 'returned');
create table customers(
  id bigint primary key, name varchar(80) not null, email text, vip boolean not null default false,
  credit numeric(12,2), born date, phones text[], address jsonb, about text, created_at timestamptz not null);
alter table customers alter about set storage external;
create table orders(
  id bigint primary key, customer_id bigint not null, status order_status not null,
  total numeric(14,2) not null, placed_at timestamptz not null, shipped_on date, note text);
create table order_lines(
  order_id bigint, line_no smallint, sku varchar(24) not null, qty integer not null, unit_price numeric(18,4) not null,
  weight real, primary key (order_id, line_no));

insert into customers values
  (1, 'Ada Lind', 'ada@lind.test', true, 250.00, '1971-03-14', '{+47 555 0101,+47 555 0102}', '{"city": "Oslo", "zip": "0150"}', repeat('Collects harbour charts. ', 90), '2026-01-05 08:00:00.25+00'),
  (2, 'Bo Quist', null, false, 0.00, '1988-11-30', '{}', '{"city": "Turku"}', null, '2026-01-05 08:10:00+00'),
  (3, 'Céline Roux', 'celine@roux.test', false, null, null, null, null, 'Prefers mornings.', '2026-01-06 09:30:15.123456+00'),
  (4, 'Dmitri Orel', 'dmitri@orel.test', false, 12.50, '1969-12-31', '{+371 555 0404}', '{"city": "Riga", "floor": 4}', null, '2026-01-07 17:45:00+00');
insert into orders values
  (100, 1, 'paid', 118.40, '2026-02-01 10:00:00+00', null, null),
  (101, 2, 'new', 9.99, '2026-02-02 11:30:00+00', null, 'gift wrap'),
  (102, 4, 'shipped', 1500.00, '2026-02-03 12:00:00+00', '2026-02-05', null);
insert into order_lines values
  (100, 1, 'ROPE-12', 3, 24.8000, 1.25), (100, 2, 'BUOY-RED', 1, 44.0000, 3.5),
  (101, 1, 'MUG', 1, 9.9900, 0.4), (102, 1, 'SAIL-XL', 1, 1500.0000, 41.75);
