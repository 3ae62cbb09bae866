//! A device on the bench: tensors go in, operations run over a band, results come out.

use std::time::Duration;

use luce_core::{DType, HostBuffer, Op};

use super::{Make, Record, host};
use crate::{
    BandLayout, BufferId, Device, Launch, MAX_RATIO_CLASSES, Memory, QueueId, RowFacts, SegmentId, Timeline, View, Wait,
};

/// The queue that all cases use.
pub(super) const QUEUE: QueueId = QueueId(0);
/// The most rows of a band in the suite.
pub(super) const MAX_ROWS: u32 = 16;
/// Capacity of the suite's bands.
pub(super) const LAYOUT: BandLayout = BandLayout { max_rows: MAX_ROWS };

/// Waits long enough for any device.
pub(super) fn finish(timeline: &Timeline, value: u64) {
    let end = timeline.wait(value, Duration::from_micros(50), Duration::from_secs(60));
    assert_eq!(end, Wait::Reached, "value {value}, failure {:?}", timeline.failure());
}

/// Rows of some sequences.
#[derive(Clone, Debug, Default)]
pub(super) struct Band {
    pub(super) rows: Vec<RowFacts>,
    pub(super) picks: Vec<u32>,
    pub(super) groups: [Vec<u32>; MAX_RATIO_CLASSES],
}

impl Band {
    /// Sequences as (slot, first position, tokens); `ratios` of the group classes, 0 for none. The last row of each
    /// sequence is picked.
    pub(super) fn new(sequences: &[(u32, u32, &[u32])], ratios: [u32; MAX_RATIO_CLASSES]) -> Band {
        let mut band = Band::default();
        for &(slot, first_position, tokens) in sequences {
            let first_row = band.rows.len() as u32;
            let end_row = first_row + tokens.len() as u32;
            for (i, &token) in tokens.iter().enumerate() {
                let (row, position) = (first_row + i as u32, first_position + i as u32);
                band.rows.push(RowFacts {
                    token,
                    position,
                    slot,
                    first_row,
                    first_position,
                    end_row,
                    reserved: [0; 2],
                });
                for (groups, &ratio) in band.groups.iter_mut().zip(&ratios) {
                    if ratio > 0 && (position + 1).is_multiple_of(ratio) {
                        groups.push(row);
                    }
                }
            }
            band.picks.push(end_row - 1);
        }
        band
    }

    /// `n` sequences of one row each at these positions, in slots 0...
    pub(super) fn decode(positions: &[u32]) -> Band {
        let tokens: Vec<[u32; 1]> = (0..positions.len() as u32).map(|i| [i]).collect();
        let sequences: Vec<_> =
            positions.iter().zip(&tokens).enumerate().map(|(i, (&p, t))| (i as u32, p, &t[..])).collect();
        Band::new(&sequences, [0; MAX_RATIO_CLASSES])
    }

    pub(super) fn launch(&self) -> Launch {
        Launch {
            rows: self.rows.len() as u32,
            picks: self.picks.len() as u32,
            groups: std::array::from_fn(|class| self.groups[class].len() as u32),
        }
    }

    /// The band description.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; LAYOUT.bytes()];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(LAYOUT.rows_at(), bytemuck::cast_slice(&self.rows));
        put(LAYOUT.picks_at(), bytemuck::cast_slice(&self.picks));
        for (class, groups) in self.groups.iter().enumerate() {
            put(LAYOUT.groups_at(class as u8), bytemuck::cast_slice(groups));
        }
        bytes
    }
}

/// A device, its band buffer, and what it has produced.
pub(super) struct Lab {
    pub(super) device: Box<dyn Device>,
    pub(super) band: BufferId,
    band_host: HostBuffer,
    record: Record,
}

impl Lab {
    pub(super) fn new(make: Make<'_>) -> Lab {
        let mut device = make();
        let band = device.alloc(LAYOUT.bytes() as u64, Memory::Shared).expect("a small shared buffer");
        let band_host = device.export(band).expect("a shared buffer can be exported");
        Lab { device, band, band_host, record: Record::default() }
    }

    pub(super) fn record(self) -> Record {
        self.record
    }

    /// A tensor with these bytes.
    pub(super) fn tensor(&mut self, dtype: DType, shape: [u32; 3], bytes: &[u8]) -> View {
        let [planes, rows, width] = shape;
        let buffer = self.device.alloc(bytes.len() as u64, Memory::Device).expect("a small buffer");
        let view = View { buffer, offset: 0, dtype, width, rows, planes };
        assert_eq!(view.bytes(), bytes.len() as u64, "a {dtype} tensor of {shape:?}");
        self.upload(&view, bytes);
        view
    }

    /// Overwrites a tensor.
    pub(super) fn upload(&mut self, view: &View, bytes: &[u8]) {
        let staging = HostBuffer::new(bytes.len()).expect("a small host buffer");
        host::write(&staging, 0, bytes);
        let value = self.device.copy_in(QUEUE, &staging, 0, view.span()).expect("copy_in");
        finish(&self.device.timeline(QUEUE), value);
    }

    /// An f32 matrix.
    pub(super) fn matrix(&mut self, rows: usize, width: usize, values: &[f32]) -> View {
        self.tensor(DType::F32, [1, rows as u32, width as u32], bytemuck::cast_slice(values))
    }

    /// Activation rows, padded to the capacity of a band with NaN: rows behind the count must not matter.
    pub(super) fn rows(&mut self, width: usize, values: &[f32]) -> View {
        let mut all = values.to_vec();
        all.resize(MAX_ROWS as usize * width, f32::NAN);
        self.matrix(MAX_ROWS as usize, width, &all)
    }

    /// Integer rows, padded likewise with -1.
    pub(super) fn int_rows(&mut self, width: usize, values: &[i32]) -> View {
        let mut all = values.to_vec();
        all.resize(MAX_ROWS as usize * width, -1);
        self.tensor(DType::I32, [1, MAX_ROWS, width as u32], bytemuck::cast_slice(&all))
    }

    /// A state [slots, rows, width] of f32.
    pub(super) fn state(&mut self, slots: usize, rows: usize, width: usize, values: &[f32]) -> View {
        self.tensor(DType::F32, [slots as u32, rows as u32, width as u32], bytemuck::cast_slice(values))
    }

    /// Activation rows that an operation will write; all ones before.
    pub(super) fn out(&mut self, dtype: DType, width: usize) -> View {
        let bytes = MAX_ROWS as usize * width * dtype.block_bytes();
        self.tensor(dtype, [1, MAX_ROWS, width as u32], &vec![0xff; bytes])
    }

    pub(super) fn prepare(&mut self, ops: &[Op<View>]) -> SegmentId {
        self.device.prepare(ops, self.band, LAYOUT).expect("the operations are right")
    }

    /// Runs operations over a band to the end.
    pub(super) fn run(&mut self, band: &Band, ops: &[Op<View>]) {
        let segment = self.prepare(ops);
        self.launch(band, segment);
    }

    pub(super) fn launch(&mut self, band: &Band, segment: SegmentId) {
        host::write(&self.band_host, 0, &band.bytes());
        let value = self.device.launch(QUEUE, segment, band.launch()).expect("launch");
        finish(&self.device.timeline(QUEUE), value);
    }

    /// Bytes of a tensor.
    pub(super) fn bytes(&mut self, view: &View) -> Vec<u8> {
        let span = view.span();
        let staging = HostBuffer::new(span.bytes as usize).expect("a small host buffer");
        let value = self.device.copy_out(QUEUE, span, &staging, 0).expect("copy_out");
        finish(&self.device.timeline(QUEUE), value);
        host::read(&staging, 0, span.bytes as usize)
    }

    /// The first `rows` rows of an f32 tensor.
    pub(super) fn floats(&mut self, view: &View, rows: usize) -> Vec<f32> {
        self.values(view, rows)
    }

    /// The first `rows` rows of a tensor of plain values; also kept for the record.
    pub(super) fn values<T: bytemuck::AnyBitPattern>(&mut self, view: &View, rows: usize) -> Vec<T> {
        let mut bytes = self.bytes(view);
        bytes.truncate(rows * view.row_bytes() as usize);
        let values = bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
        self.record.results.push((String::new(), bytes));
        values
    }

    /// Names what has been read since the last call.
    pub(super) fn case(&mut self, name: &str) {
        for (i, (text, _)) in self.record.results.iter_mut().rev().take_while(|(text, _)| text.is_empty()).enumerate() {
            *text = format!("{name} (result {i} from the end)");
        }
    }

    /// Gives a buffer back.
    pub(super) fn free(&mut self, views: &[View]) {
        for view in views {
            self.device.free(view.buffer).expect("a live buffer");
        }
    }
}

/// Pseudo-random numbers, the same everywhere.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A value in -1..1 with 16 bits.
    pub(super) fn value(&mut self) -> f32 {
        (self.word() >> 47) as f32 / 65536.0 - 1.0
    }

    pub(super) fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.value()).collect()
    }

    /// Integers below `end`.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        (((self.word() >> 32) * u64::from(end)) >> 32) as u32
    }
}

/// The largest distance must stay below `tolerance * max(1, |wanted|)`.
pub(super) fn close(case: &str, got: &[f32], wanted: &[f64], tolerance: f64) {
    assert_eq!(got.len(), wanted.len(), "{case}: number of values");
    for (i, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        let distance = (f64::from(got) - wanted).abs();
        assert!(distance <= tolerance * wanted.abs().max(1.0), "{case}: value {i} is {got}, {wanted} wanted");
    }
}
