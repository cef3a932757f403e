//! Inputs of the five transactions (2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1).
//!
//! Dates are not inputs: the transaction's runner reads the clock.

use super::{
    Constants, CustomerKey, DISTRICTS, DistrictKey, ItemKey, Random, Scale, ScaleError, StockKey, Text, WarehouseKey,
};

/// Probabilities in percent; 100 and above is always.
///
/// # Example
///
/// ```
/// use drtm_tpcc::Chances;
///
/// let distributed = Chances { remote_item: 100, ..Chances::STANDARD };
/// assert_eq!(distributed.remote_payment, 15);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chances {
    /// The last item of an order does not exist, so that the order is rolled back (2.4.1.4).
    pub rollback: u8,
    /// A line of an order is supplied by another warehouse (2.4.1.5).
    pub remote_item: u8,
    /// A payment is by a customer of another warehouse (2.5.1.2).
    pub remote_payment: u8,
    /// A customer is given by name, not by number (2.5.1.2, 2.6.1.2).
    pub by_name: u8,
}

impl Chances {
    /// The specification's probabilities.
    pub const STANDARD: Self = Self { rollback: 1, remote_item: 1, remote_payment: 15, by_name: 60 };
}

/// How a customer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomerChoice {
    /// By its number.
    Number(u32),
    /// By its last name: the middle one, by first name, of all with this last name.
    LastName(Text<16>),
}

/// A line of a NEW-ORDER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the specification's inputs")]
pub struct NewOrderLine {
    /// Greater than all items' numbers for an order that is to be rolled back.
    pub item: ItemKey,
    pub supply_warehouse: WarehouseKey,
    pub quantity: u8,
}

/// The most lines of an order (2.4.1.3).
pub(super) const MOST_LINES: usize = 15;

/// NEW-ORDER's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// The ordering customer.
    pub customer: CustomerKey,
    lines: [NewOrderLine; MOST_LINES],
    stocks: [StockKey; MOST_LINES],
    count: u8,
}

impl NewOrder {
    /// Returns five to fifteen lines.
    pub fn lines(&self) -> &[NewOrderLine] {
        &self.lines[..self.count.into()]
    }

    /// Returns the stock keys of the lines, in their order.
    pub fn stocks(&self) -> &[StockKey] {
        &self.stocks[..self.count.into()]
    }

    /// Returns whether all lines are supplied by the customer's warehouse: O_ALL_LOCAL.
    pub fn is_all_local(&self) -> bool {
        self.lines().iter().all(|line| line.supply_warehouse == self.customer.0)
    }
}

/// PAYMENT's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the specification's inputs")]
pub struct Payment {
    /// Where it is paid.
    pub district: DistrictKey,
    /// The customer's home district.
    pub customer_district: DistrictKey,
    pub customer: CustomerChoice,
    /// In cents.
    pub amount: i64,
}

/// ORDER-STATUS's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the specification's inputs")]
pub struct OrderStatus {
    pub district: DistrictKey,
    pub customer: CustomerChoice,
}

/// DELIVERY's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the specification's inputs")]
pub struct Delivery {
    pub warehouse: WarehouseKey,
    pub carrier: u8,
}

/// STOCK-LEVEL's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the specification's inputs")]
pub struct StockLevel {
    pub district: DistrictKey,
    pub threshold: i16,
}

/// The inputs of one terminal.
///
/// # Example
///
/// ```
/// use drtm_tpcc::{Chances, Constants, Inputs, Scale};
/// use drtm_drive::Random;
///
/// let scale = Scale::new(4)?;
/// let mut random = Random::seeded(1);
/// let run = Constants::for_run(Constants::for_load(&mut random), &mut random);
/// let mut inputs = Inputs::new(scale, run, Chances::STANDARD, (3, 7), random)?;
/// let order = inputs.new_order();
/// assert_eq!(order.customer.0, 3, "the terminal's warehouse");
/// assert!((5..=15).contains(&order.lines().len()));
/// assert_eq!(inputs.stock_level().district, (3, 7), "the terminal's district");
/// # Ok::<(), drtm_tpcc::ScaleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Inputs {
    scale: Scale,
    constants: Constants,
    chances: Chances,
    /// The terminal's district.
    home: DistrictKey,
    /// Whether all items are equally likely.
    is_uniform: bool,
    random: Random,
}

impl Inputs {
    /// Creates the inputs of the terminal in a district, over a population of this scale.
    ///
    /// # Errors
    ///
    /// Returns an error if the district does not exist.
    pub fn new(
        scale: Scale,
        constants: Constants,
        chances: Chances,
        home: DistrictKey,
        random: Random,
    ) -> Result<Self, ScaleError> {
        let (warehouse, district) = home;
        if !(1..=scale.warehouses()).contains(&warehouse) || !(1..=DISTRICTS).contains(&district) {
            return Err(ScaleError::District(warehouse, district));
        }
        Ok(Self { scale, constants, chances, home, is_uniform: false, random })
    }

    /// Makes all items equally likely. With few items, the specification's distribution has far
    /// fewer popular rows than with all of them.
    pub(super) fn with_uniform_items(self, is_uniform: bool) -> Self {
        Self { is_uniform, ..self }
    }

    /// Draws the next NEW-ORDER (2.4.1).
    pub fn new_order(&mut self) -> NewOrder {
        let (warehouse, district) = self.district();
        let customer = (warehouse, district, self.constants.customer(&self.scale, &mut self.random));
        let count = self.random.within(5, 15);
        let nothing = NewOrderLine { item: 0, supply_warehouse: 0, quantity: 0 };
        let mut order = NewOrder { customer, lines: [nothing; MOST_LINES], stocks: [(0, 0); MOST_LINES], count };
        let lines = &mut order.lines[..count.into()];
        for line in &mut *lines {
            *line = self.line();
        }
        if self.random.percent(self.chances.rollback)
            && let Some(last) = lines.last_mut()
        {
            last.item = self.scale.items() + 1;
        }
        for (stock, line) in order.stocks.iter_mut().zip(&order.lines) {
            *stock = (line.supply_warehouse, line.item);
        }
        order
    }

    /// Draws the next PAYMENT (2.5.1).
    pub fn payment(&mut self) -> Payment {
        let district = self.district();
        let customer_district = if self.random.percent(self.chances.remote_payment) {
            (self.other_warehouse(), self.random.within(1, DISTRICTS))
        } else {
            district
        };
        let customer = self.customer();
        Payment { district, customer_district, customer, amount: self.random.within(100, 500_000) }
    }

    /// Draws the next ORDER-STATUS (2.6.1).
    pub fn order_status(&mut self) -> OrderStatus {
        OrderStatus { district: self.district(), customer: self.customer() }
    }

    /// Draws the next DELIVERY (2.7.1).
    pub fn delivery(&mut self) -> Delivery {
        Delivery { warehouse: self.home.0, carrier: self.random.within(1, 10) }
    }

    /// Draws the next STOCK-LEVEL (2.8.1).
    pub fn stock_level(&mut self) -> StockLevel {
        StockLevel { district: self.home, threshold: self.random.within(10, 20) }
    }

    /// Returns the stream for other draws than inputs, such as a [`Deck`](super::Deck)'s cards.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    fn line(&mut self) -> NewOrderLine {
        let item = match self.is_uniform {
            true => self.random.within(1, self.scale.items()),
            false => self.constants.item(&self.scale, &mut self.random),
        };
        let is_remote = self.random.percent(self.chances.remote_item);
        let supply_warehouse = if is_remote { self.other_warehouse() } else { self.home.0 };
        NewOrderLine { item, supply_warehouse, quantity: self.random.within(1, 10) }
    }

    /// Draws a district of the terminal's warehouse.
    fn district(&mut self) -> DistrictKey {
        (self.home.0, self.random.within(1, DISTRICTS))
    }

    /// Draws a warehouse other than the terminal's; with a single warehouse, returns that one.
    fn other_warehouse(&mut self) -> WarehouseKey {
        let home = self.home.0;
        if self.scale.warehouses() == 1 {
            return home;
        }
        let other = self.random.within(1, self.scale.warehouses() - 1);
        if other < home { other } else { other + 1 }
    }

    fn customer(&mut self) -> CustomerChoice {
        if self.random.percent(self.chances.by_name) {
            CustomerChoice::LastName(self.constants.last_name(&self.scale, &mut self.random))
        } else {
            CustomerChoice::Number(self.constants.customer(&self.scale, &mut self.random))
        }
    }
}

#[cfg(test)]
mod tests;
