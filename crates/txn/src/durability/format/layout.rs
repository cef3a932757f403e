//! Layouts: integers that stand in a file one after another, little-endian.

/// Defines a layout: its fields in the order of their bytes, without gaps.
macro_rules! layout {
    ($(#[$attribute:meta])* struct $name:ident { $($field:ident: $integer:ty,)+ }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy)]
        struct $name {
            $($field: $integer,)+
        }

        impl $name {
            const BYTES: usize = 0 $(+ size_of::<$integer>())+;

            fn encode(self) -> [u8; Self::BYTES] {
                let mut bytes = [0; Self::BYTES];
                let mut at = 0;
                $(
                    bytes[at..][..size_of::<$integer>()].copy_from_slice(&self.$field.to_le_bytes());
                    at += size_of::<$integer>();
                )+
                debug_assert_eq!(at, Self::BYTES, "fields have no gaps");
                bytes
            }

            /// Returns the fields, and the bytes behind them. `None` if there are too few bytes.
            fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
                let rest = bytes;
                $(
                    let (bytes, rest) = rest.split_first_chunk()?;
                    let $field = <$integer>::from_le_bytes(*bytes);
                )+
                Some((Self { $($field,)+ }, rest))
            }
        }
    };
}

pub(super) use layout;
