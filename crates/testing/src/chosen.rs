//! A value that a thread's code finds without being given it, such as the deliberate fault of the
//! databases that it uses. A type for each value would have all code compiled for each.

use std::{cell::Cell, thread::LocalKey};

/// Runs `run` with a value in this thread's cell. What was there comes back, after a panic too.
///
/// # Example
///
/// ```
/// use std::cell::Cell;
///
/// use drtm_testing::chosen;
///
/// thread_local! {
///     static CHOSEN: Cell<u32> = const { Cell::new(0) };
/// }
///
/// assert_eq!(chosen::with(&CHOSEN, 7, || CHOSEN.get()), 7);
/// assert_eq!(CHOSEN.get(), 0);
/// ```
pub fn with<T: Copy, R>(cell: &'static LocalKey<Cell<T>>, value: T, run: impl FnOnce() -> R) -> R {
    struct Before<T: Copy + 'static>(&'static LocalKey<Cell<T>>, T);
    impl<T: Copy> Drop for Before<T> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _before = Before(cell, cell.replace(value));
    run()
}

/// Returns what another thread can run with the value that this one has in its cell.
///
/// # Example
///
/// ```
/// use std::{cell::Cell, thread};
///
/// use drtm_testing::chosen;
///
/// thread_local! {
///     static CHOSEN: Cell<u32> = const { Cell::new(0) };
/// }
///
/// let read = chosen::with(&CHOSEN, 7, || chosen::inherited(&CHOSEN, || CHOSEN.get()));
/// assert_eq!(thread::spawn(read).join().expect("it reads"), 7);
/// ```
pub fn inherited<T: Copy, R>(cell: &'static LocalKey<Cell<T>>, run: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let value = cell.get();
    move || with(cell, value, run)
}
