-- Every statement is its own transaction unless begin/commit says otherwise.
insert into customers values (5, 'Eun-ji Park', 'eunji@park.test', false, 80.00, '1995-07-01', '{+82 555 0505}', '{"city": "Busan"}', null, '2026-03-01 07:00:00+00');
begin;
insert into orders values (103, 5, 'new', 48.00, '2026-03-01 07:05:00+00', null, null);
insert into order_lines values (103, 1, 'LAMP', 2, 19.5000, 0.8), (103, 2, 'WICK', 10, 0.9000, 0.01);
commit;
update customers set credit = 175.25 where id = 1;            -- "about" is not sent: stored out of line and unchanged
update orders set status = 'shipped', shipped_on = '2026-03-02' where id = 100;
update customers set email = 'bo@quist.test', vip = true where id = 2;
update orders set note = null where id = 101;
begin;
insert into customers values (6, 'Fola Ade', null, false, 5.00, null, null, null, null, '2026-03-03 12:00:00+00');
update customers set credit = 6.00 where id = 6;
update customers set credit = 7.50, born = '2000-02-29' where id = 6;
commit;
begin;
insert into customers values (7, 'Never Kept', null, false, null, null, null, null, null, now());
rollback;
delete from order_lines where order_id = 101;
delete from orders where id = 101;
update customers set id = 30 where id = 3;                    -- a changed key: delete of 3, create of 30
update order_lines set qty = 4, unit_price = 24.7500 where order_id = 100 and line_no = 1;
update orders set total = 143.00 where id = 100;
begin;
delete from customers where id = 4;
insert into customers values (4, 'Dmitri Orel jr.', 'dj@orel.test', true, 0.01, '1999-01-01', '{+371 555 0404}', '{"city": "Riga"}', null, '2026-03-04 10:00:00+00');
commit;
insert into orders values (104, 30, 'new', 1e6, '2026-03-05 23:59:59.999999+00', null, 'naïve – "quoted", 日本');
insert into order_lines values (104, 1, 'ANCHOR', 1, 1000000.0000, 812.5);
update orders set status = 'paid' where id in (103, 104);
delete from order_lines where order_id = 103 and line_no = 2;
update orders set total = 39.00 where id = 103;
insert into orders values (101, 2, 'new', 19.98, '2026-03-06 08:00:00+00', null, 'again');  -- a deleted key comes back
insert into order_lines values (101, 1, 'MUG', 2, 9.9900, 0.4);
update orders set status = 'returned', note = 'rope frayed' where id = 100;
update customers set phones = '{+358 555 0202}', address = '{"city": "Turku", "zip": "20100"}' where id = 2;
delete from customers where id = 6;
update customers set credit = 175.00, about = 'Sold the charts.' where id = 1;
