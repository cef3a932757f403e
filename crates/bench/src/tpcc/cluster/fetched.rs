//! NEW-ORDER as a transaction that fetches its rows before it runs, as DrTM's do.

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Error,
    cluster::{Rows, Sets, Worker},
};

use super::{
    tables::Tables,
    transactions::{UNUSED_ITEM, no_key},
};
use crate::tpcc::{
    DISTRICTS, NewOrder, NewOrderInput, OrderByCustomer,
    tables::{CUSTOMER, DISTRICT, STOCK, WAREHOUSE, expect_row},
    transactions::{Receipt, is_original, line_row, order_row, take, total},
};

impl Tables {
    /// NEW-ORDER (2.4), as [`order`](Self::order).
    pub(super) async fn order_fetched<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        worker: &Worker<'_, F, S>,
        node: u16,
        input: &NewOrderInput,
        date: u64,
    ) -> Result<Receipt, Error> {
        let (warehouse, district, _) = input.customer;
        // The order's number, unless another order comes first: then its rows are found out.
        let number = worker.transact(async |tx| {
            Ok(expect_row(tx.get(self.districts, (warehouse, district)).await?, DISTRICT)?.next_order.get())
        });
        let number = number.await?;
        let ordered = worker.transact_on(
            |sets| self.declare_order(sets, node, input, number),
            |rows| self.order_on(rows, node, input, date),
        );
        ordered.await
    }

    fn declare_order<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        sets: &mut Sets<'_, '_, F, S>,
        node: u16,
        input: &NewOrderInput,
        number: u32,
    ) -> Result<(), Error> {
        let (warehouse, district, _) = input.customer;
        sets.read(self.warehouses, &warehouse)?;
        sets.write(self.districts, (warehouse, district))?;
        sets.read(self.customers, &input.customer)?;
        for (line, place) in input.lines().iter().zip(1..) {
            sets.read(self.items, &(node, line.item))?;
            sets.write(self.stocks, (line.supply_warehouse, line.item))?;
            sets.write(self.order_lines, &(warehouse, district, number, place))?;
        }
        let key = (warehouse, district, number);
        sets.write(self.orders, &key)?;
        sets.write(self.new_orders, &key)?;
        sets.write(self.orders_by_customer, OrderByCustomer::new(input.customer, number).map_err(no_key)?)
    }

    fn order_on<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        rows: &mut Rows<'_, '_, F, S>,
        node: u16,
        input: &NewOrderInput,
        date: u64,
    ) -> Result<Receipt, Error> {
        let (warehouse, district, _) = input.customer;
        let tax = expect_row(rows.get(self.warehouses, &warehouse)?, WAREHOUSE)?.tax.get();
        let taken = rows.update(self.districts, (warehouse, district), |row| {
            let number = row.next_order.get();
            row.next_order.set(number + 1);
            (number, row.tax.get())
        });
        let (number, district_tax) = expect_row(taken?, DISTRICT)?;
        let account = expect_row(rows.get(self.customers, &input.customer)?, CUSTOMER)?.account;
        let (mut sum, mut brands) = (0, 0);
        for (line, place) in input.lines().iter().zip(1..) {
            let item = rows.get(self.items, &(node, line.item))?.ok_or_else(|| Error::aborted(UNUSED_ITEM))?;
            let amount = item.price.get() * i64::from(line.quantity);
            let is_remote = line.supply_warehouse != warehouse;
            let sold = rows.update(self.stocks, (line.supply_warehouse, line.item), |stock| {
                take(&mut stock.supply, line.quantity, is_remote);
                let info = stock.districts[usize::from(district.wrapping_sub(1) % DISTRICTS)];
                (info, is_original(&stock.supply.data))
            });
            let (info, is_original_stock) = expect_row(sold?, STOCK)?;
            let key = (warehouse, district, number, place);
            rows.insert(self.order_lines, &key, &line_row(line, amount, info))?;
            sum += amount;
            brands += u8::from(is_original_stock && is_original(&item.data));
        }
        let key = (warehouse, district, number);
        rows.insert(self.orders, &key, &order_row(input, date))?;
        let by_customer = OrderByCustomer::new(input.customer, number).map_err(no_key)?;
        rows.insert(self.orders_by_customer, by_customer, &())?;
        rows.insert(self.new_orders, &key, &NewOrder)?;
        let total = total(sum, account.discount.get(), tax + district_tax);
        Ok(Receipt { number, total, last: account.last, credit: account.credit, brands })
    }
}
