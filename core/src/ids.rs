//! Newtypes for ids and for numbers that could be swapped by mistake.

use std::fmt;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number as an index.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

id! {
    /// An actor of one box, in the order of the configuration.
    ActorId(u16);
    /// A band: a batch of rows that goes through the model together. Counted from 0 since start, never reused.
    BandId(u64);
    /// One of the numbered places for admitted bands.
    LaneId(u16);
    /// A layer of the model, from 0.
    LayerId(u16);
    /// A node of the wiring: one stage of the layer program placed on one actor.
    NodeId(u32);
    /// An input port of a node.
    PortId(u8);
    /// A sequence since start, never reused.
    SequenceId(u64);
    /// A place for one sequence's state (windows, compressed rows, index keys) in the memory of the devices.
    SlotId(u16);
    /// A device queue's completion counter; see [`crate::Fence`].
    TimelineId(u16);
    /// An entry of the vocabulary.
    TokenId(u32);
    /// A position in a sequence; the first token stands at 0.
    TokenPos(u32);
}

/// A number of bytes; prints with a binary unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        for (unit, size) in UNITS {
            if self.0 >= size {
                return write!(f, "{:.2} {unit}", self.0 as f64 / size as f64);
            }
        }
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_print_with_the_largest_unit_that_fits() {
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(3 << 29).to_string(), "1.50 GiB");
    }
}
