//! Handles, fences and tokens: what actors send each other instead of tensors.

use crate::{ActorId, BandId, DType, LaneId, LayerId, NodeId, PortId, TimelineId};

/// How to know that a tensor is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fence {
    /// The tensor is there.
    #[default]
    Ready,
    /// Complete once the counter of this timeline has reached `value`. A device queue counts one up per submission.
    Reached {
        /// The counter: that of a device queue, or a flag word in host memory.
        timeline: TimelineId,
        /// The value that it must have reached.
        value: u64,
    },
    /// It will never be complete: the band failed. Consumers pass this on and compute nothing.
    Failed,
}

/// A typed reference to a tensor that lives in one actor's memory. Never the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    /// The actor in whose memory the tensor lies.
    pub owner: ActorId,
    /// Which of the wiring's slots.
    pub slot: u32,
    /// Element type.
    pub dtype: DType,
    /// Shape: rows and row width.
    pub shape: [u32; 2],
    /// When it is complete.
    pub fence: Fence,
}

/// The colour of a dataflow token: which band, in which layer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag {
    /// The band.
    pub band: BandId,
    /// The layer of the node that the token goes to.
    pub layer: LayerId,
}

/// Tensors of one message; a small fixed array, so that sending allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handles {
    items: [Option<Handle>; Handles::MAX],
    len: u8,
}

impl Handles {
    /// The most tensors that one edge carries.
    pub const MAX: usize = 8;

    /// Adds a tensor.
    ///
    /// # Panics
    /// If there are already [`Handles::MAX`]: the wiring compiler refuses such an edge.
    pub fn push(&mut self, handle: Handle) {
        assert!((self.len as usize) < Self::MAX, "an edge carries at most {} tensors", Self::MAX);
        self.items[self.len as usize] = Some(handle);
        self.len += 1;
    }

    /// The tensors in port order.
    pub fn iter(&self) -> impl Iterator<Item = &Handle> {
        self.items[..self.len as usize].iter().flatten()
    }
}

impl FromIterator<Handle> for Handles {
    fn from_iter<I: IntoIterator<Item = Handle>>(iter: I) -> Self {
        let mut handles = Handles::default();
        iter.into_iter().for_each(|h| handles.push(h));
        handles
    }
}

/// One message per firing of an edge, with all of its tensors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// The node it goes to.
    pub node: NodeId,
    /// The input port of that node.
    pub port: PortId,
    /// Band and layer.
    pub tag: Tag,
    /// The band's lane, which says whose slots the handles name.
    pub lane: LaneId,
    /// The tensors, with their fences.
    pub handles: Handles,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "at most 8 tensors")]
    fn an_edge_with_too_many_tensors_is_a_bug_not_a_lost_tensor() {
        let h = Handle { owner: ActorId(0), slot: 0, dtype: DType::F32, shape: [1, 1], fence: Fence::Ready };
        let _ = (0..9).map(|_| h).collect::<Handles>();
    }
}
