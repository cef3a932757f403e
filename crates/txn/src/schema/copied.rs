//! Implementing `Copy` for definitions and handles. A derive would require their type parameters to
//! be `Copy` too.

/// Implements `Clone`, `Copy` and `Debug`, which shows these fields.
macro_rules! copied {
    ($(<$($of:ident $(: $bound:ident)?),+> $type:ty as $name:literal { $($field:ident),* };)+) => {$(
        impl<$($of $(: $bound)?),+> Clone for $type {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($of $(: $bound)?),+> Copy for $type {}

        impl<$($of $(: $bound)?),+> std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct($name)$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    )+};
}

pub(crate) use copied;
