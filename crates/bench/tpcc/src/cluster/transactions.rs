//! The five transactions over several nodes: optimistic, or on rows that are fetched first. What
//! rows become is what one node makes of them; columns do not reach over nodes, so that whole rows
//! travel.

use drtm_drive::{Body, Reads};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{Config, Error, Transaction, cluster::Sets};
use zerocopy::little_endian::{I64, U64};

use super::tables::Tables;
use crate::{
    CustomerByName, CustomerChoice, CustomerKey, DISTRICTS, Delivery, DistrictKey, HistoryKey, KeyError, NewOrder,
    NewOrderInput, OrderByCustomer, OrderKey, OrderStatus, Payment, StockLevel,
    stock::StockRow,
    tables::{CUSTOMER, DISTRICT, ORDER, ORDER_BY_CUSTOMER, ORDER_LINE, STOCK, WAREHOUSE, expect_row},
    transactions::{
        Paid, RECENT, Receipt, Status, delivered_to, history_row, is_original, line_row, middle, order_row, paid_by,
        remember, take, total,
    },
};

/// The reason of the one order of a hundred that is to be rolled back (2.4.1.4).
pub(super) const UNUSED_ITEM: &str = "an item that there is not";

/// The oldest order of each district of a warehouse that may not be delivered yet. Orders are
/// delivered in turn, and none comes back: so all that are older have been.
pub(super) type Oldest = [u32; DISTRICTS as usize];

/// The most orders among which the oldest is looked for at a time.
const MOST_LOOKED_AT: u32 = 64;

fn no_key(error: KeyError) -> Error {
    Error::aborted(error.to_string())
}

/// NEW-ORDER (2.4): all lines of an input, or none.
pub(super) struct Order<'t, R: StockRow> {
    pub(super) tables: Tables<R>,
    pub(super) node: u16,
    pub(super) input: &'t NewOrderInput,
    pub(super) date: u64,
    /// The order's number, unless another order comes first: then its rows are found out.
    pub(super) number: Option<u32>,
}

impl<R: StockRow> Body for Order<'_, R> {
    type Output = Receipt;

    fn declare<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        sets: &mut Sets<'_, '_, F, S>,
    ) -> Result<(), Error> {
        let Self { tables, node, input, number, .. } = *self;
        let Some(number) = number else { return Ok(()) };
        let (warehouse, district, _) = input.customer;
        sets.read(tables.warehouses, &warehouse)?;
        sets.write(tables.districts, (warehouse, district))?;
        sets.read(tables.customers, &input.customer)?;
        for (line, place) in input.lines().iter().zip(1..) {
            sets.read(tables.items, &(node, line.item))?;
            sets.write(tables.stocks, (line.supply_warehouse, line.item))?;
            sets.write(tables.order_lines, &(warehouse, district, number, place))?;
        }
        let key = (warehouse, district, number);
        sets.write(tables.orders, &key)?;
        sets.write(tables.new_orders, &key)?;
        sets.write(tables.orders_by_customer, OrderByCustomer::new(input.customer, number).map_err(no_key)?)
    }

    async fn run(&self, tx: &mut impl Transaction, reads: Reads) -> Result<Receipt, Error> {
        let Self { tables, node, input, date, .. } = *self;
        let (warehouse, district, _) = input.customer;
        // The only rows that other nodes may have.
        reads.prefetch(tx, tables.stocks, input.stocks()).await?;
        let tax = expect_row(tx.get(tables.warehouses, &warehouse).await?, WAREHOUSE)?.tax.get();
        let taken = tx.update(tables.districts, (warehouse, district), |row| {
            let number = row.next_order.get();
            row.next_order.set(number + 1);
            (number, row.tax.get())
        });
        let (number, district_tax) = expect_row(taken.await?, DISTRICT)?;
        let account = expect_row(tx.get(tables.customers, &input.customer).await?, CUSTOMER)?.account;
        let (mut sum, mut brands) = (0, 0);
        for (line, place) in input.lines().iter().zip(1..) {
            let item = tx.get(tables.items, &(node, line.item)).await?.ok_or_else(|| Error::aborted(UNUSED_ITEM))?;
            let amount = item.price.get() * i64::from(line.quantity);
            let is_remote = line.supply_warehouse != warehouse;
            let sold = tx.update(tables.stocks, (line.supply_warehouse, line.item), |stock| {
                take(stock.supply_mut(), line.quantity, is_remote);
                (stock.info(district), is_original(&stock.supply().data))
            });
            let (info, is_original_stock) = expect_row(sold.await?, STOCK)?;
            let key = (warehouse, district, number, place);
            tx.insert(tables.order_lines, &key, &line_row(line, amount, info)).await?;
            sum += amount;
            brands += u8::from(is_original_stock && is_original(&item.data));
        }
        let key = (warehouse, district, number);
        tx.insert(tables.orders, &key, &order_row(input, date)).await?;
        let by_customer = OrderByCustomer::new(input.customer, number).map_err(no_key)?;
        tx.insert(tables.orders_by_customer, by_customer, &()).await?;
        tx.insert(tables.new_orders, &key, &NewOrder).await?;
        let total = total(sum, account.discount.get(), tax + district_tax);
        Ok(Receipt { number, total, last: account.last, credit: account.credit, brands })
    }
}

/// PAYMENT (2.5), written down under a key of its own. The customer may be of another node, and is
/// read before the rows that all payments of the warehouse write.
pub(super) struct Pay<'t, R: StockRow> {
    pub(super) tables: Tables<R>,
    pub(super) input: &'t Payment,
    pub(super) key: HistoryKey,
    pub(super) date: u64,
}

impl<R: StockRow> Body for Pay<'_, R> {
    type Output = Paid;

    /// A customer by its last name is found out.
    fn declare<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        sets: &mut Sets<'_, '_, F, S>,
    ) -> Result<(), Error> {
        let Self { tables, input, key, .. } = *self;
        let CustomerChoice::Number(number) = input.customer else { return Ok(()) };
        let (warehouse, district) = input.customer_district;
        sets.write(tables.customers, &(warehouse, district, number))?;
        sets.write(tables.warehouses, &input.district.0)?;
        sets.write(tables.districts, &input.district)?;
        sets.write(tables.histories, &key)
    }

    async fn run(&self, tx: &mut impl Transaction, _reads: Reads) -> Result<Paid, Error> {
        let Self { tables, input, key, date } = *self;
        let Payment { district, customer_district, ref customer, amount } = *input;
        let customer = tables.choose(tx, customer_district, customer).await?;
        let changed = tx.update(tables.customers, &customer, |row| {
            let (balance, is_bad) = paid_by(&mut row.account, amount);
            if is_bad {
                remember(row, customer, input);
            }
            balance
        });
        let balance = expect_row(changed.await?, CUSTOMER)?;
        let warehouse_name = tx.update(tables.warehouses, &district.0, |row| {
            row.ytd += I64::new(amount);
            row.name
        });
        let warehouse_name = expect_row(warehouse_name.await?, WAREHOUSE)?;
        let district_name = tx.update(tables.districts, &district, |row| {
            row.ytd += I64::new(amount);
            row.name
        });
        let district_name = expect_row(district_name.await?, DISTRICT)?;
        let row = history_row(input, customer, date, (&warehouse_name, &district_name));
        tx.insert(tables.histories, &key, &row).await?;
        Ok(Paid { customer, balance })
    }
}

/// ORDER-STATUS (2.6): reads only. What is the last order is found out.
pub(super) struct LastOrder<'t, R: StockRow> {
    pub(super) tables: Tables<R>,
    pub(super) input: &'t OrderStatus,
}

impl<R: StockRow> Body for LastOrder<'_, R> {
    type Output = Status;

    async fn run(&self, tx: &mut impl Transaction, _reads: Reads) -> Result<Status, Error> {
        let Self { tables, input } = *self;
        let customer = tables.choose(tx, input.district, &input.customer).await?;
        let balance = expect_row(tx.get(tables.customers, &customer).await?, CUSTOMER)?.account.balance.get();
        let last = tx.last(tables.orders_by_customer, OrderByCustomer::range(customer).map_err(no_key)?).await?;
        let order = expect_row(last, ORDER_BY_CUSTOMER)?.0.order();
        let (warehouse, district, _) = customer;
        let row = expect_row(tx.get(tables.orders, &(warehouse, district, order)).await?, ORDER)?;
        let lines = (warehouse, district, order, 0)..=(warehouse, district, order, u8::MAX);
        let lines = tx.range(tables.order_lines, lines).await?;
        Ok(Status {
            customer,
            balance,
            order,
            carrier: row.carrier,
            entry_date: row.entry_date.get(),
            lines: lines.len() as u8,
            amount: lines.iter().map(|(_, line)| line.amount.get()).sum(),
        })
    }
}

/// DELIVERY (2.7): one transaction for all districts of a warehouse. What are the oldest orders is
/// found out.
pub(super) struct Deliver<'t, R: StockRow> {
    pub(super) tables: Tables<R>,
    pub(super) input: &'t Delivery,
    pub(super) oldest: &'t Oldest,
    pub(super) date: u64,
}

impl<R: StockRow> Body for Deliver<'_, R> {
    /// What is the oldest order of each district afterwards, as far as the transaction has seen.
    type Output = Oldest;

    async fn run(&self, tx: &mut impl Transaction, reads: Reads) -> Result<Oldest, Error> {
        let Self { tables, input, oldest, date } = *self;
        let (mut next, mut carried) = (*oldest, Vec::with_capacity(oldest.len()));
        let first = (1..).zip(oldest).map(|(district, number)| (input.warehouse, district, *number));
        reads.prefetch(tx, tables.new_orders, first).await?;
        for (district, next) in (1..).zip(&mut next) {
            let Some(key) = tables.find_oldest(tx, (input.warehouse, district), next).await? else { continue };
            tx.remove(tables.new_orders, &key).await?;
            *next = key.2 + 1;
            carried.push(key);
        }
        reads.prefetch(tx, tables.orders, &carried).await?;
        let mut lines = Vec::new();
        let mut customers = Vec::with_capacity(carried.len());
        for key @ (warehouse, district, number) in carried {
            let order = tx.update(tables.orders, &key, |row| {
                row.carrier = input.carrier;
                (row.customer.get(), row.line_count)
            });
            let (customer, count) = expect_row(order.await?, ORDER)?;
            customers.push(((warehouse, district, customer), lines.len()..lines.len() + usize::from(count)));
            lines.extend((1..=count).map(|line| (warehouse, district, number, line)));
        }
        reads.prefetch(tx, tables.order_lines, &lines).await?;
        reads.prefetch(tx, tables.customers, customers.iter().map(|(customer, _)| customer)).await?;
        for (customer, of_customer) in customers {
            let mut amount = 0;
            for line in &lines[of_customer] {
                let delivered = tx.update(tables.order_lines, line, |row| {
                    row.delivery_date = U64::new(date);
                    row.amount.get()
                });
                amount += expect_row(delivered.await?, ORDER_LINE)?;
            }
            let paid = tx.update(tables.customers, &customer, |row| delivered_to(&mut row.account, amount));
            expect_row(paid.await?, CUSTOMER)?;
        }
        Ok(next)
    }
}

/// STOCK-LEVEL (2.8): of the items of the last orders, how many there are few of. Reads only; what
/// are the last orders is found out.
pub(super) struct LowStock<'t, R: StockRow> {
    pub(super) tables: Tables<R>,
    pub(super) input: &'t StockLevel,
}

impl<R: StockRow> Body for LowStock<'_, R> {
    type Output = usize;

    async fn run(&self, tx: &mut impl Transaction, reads: Reads) -> Result<usize, Error> {
        let Self { tables, input } = *self;
        let (warehouse, district) = input.district;
        let next = expect_row(tx.get(tables.districts, &input.district).await?, DISTRICT)?.next_order.get();
        let first = next.saturating_sub(RECENT);
        let lines = (warehouse, district, first, 0)..(warehouse, district, next, 0);
        let lines = tx.range(tables.order_lines, lines).await?;
        let mut stocks: Vec<_> = lines.iter().map(|(_, line)| (warehouse, line.item.get())).collect();
        stocks.sort_unstable();
        stocks.dedup();
        let mut low = 0;
        for stock in reads.get_many(tx, tables.stocks, &stocks).await? {
            low += usize::from(expect_row(stock, STOCK)?.supply().quantity.get() < input.threshold);
        }
        Ok(low)
    }
}

impl<R: StockRow> Tables<R> {
    /// The oldest order of a district that is not delivered, if there is one, from a number on. The
    /// number becomes the first after those that were looked at in vain.
    async fn find_oldest(
        self,
        tx: &mut impl Transaction,
        (warehouse, district): DistrictKey,
        from: &mut u32,
    ) -> Result<Option<OrderKey>, Error> {
        let key = (warehouse, district, *from);
        if tx.contains(self.new_orders, &key).await? {
            return Ok(Some(key));
        }
        // Another terminal has delivered it, or it was not ordered yet.
        let end = expect_row(tx.get(self.districts, &(warehouse, district)).await?, DISTRICT)?.next_order.get();
        let mut looked_at = 1;
        while *from < end {
            let next = end.min(*from + looked_at);
            let some = tx.range(self.new_orders, (warehouse, district, *from)..(warehouse, district, next));
            if let Some((key, _)) = some.await?.first() {
                return Ok(Some(*key));
            }
            *from = next;
            looked_at = (2 * looked_at).min(MOST_LOOKED_AT);
        }
        Ok(None)
    }

    /// The customer that is meant.
    async fn choose(
        self,
        tx: &mut impl Transaction,
        (warehouse, district): DistrictKey,
        choice: &CustomerChoice,
    ) -> Result<CustomerKey, Error> {
        let last = match choice {
            CustomerChoice::Number(number) => return Ok((warehouse, district, *number)),
            CustomerChoice::LastName(last) => last,
        };
        let named = CustomerByName::range((warehouse, district), last).map_err(no_key)?;
        let named = tx.range(self.customers_by_name, named).await?;
        // Two names may have the same number.
        let named = named.iter().filter(|(_, names)| names.last == *last);
        let mut named: Vec<_> = named.map(|(key, names)| (*names.first.padded(), key.customer().2)).collect();
        Ok((warehouse, district, expect_row(middle(&mut named), CUSTOMER)?))
    }
}
