//! What the engine chose and computed on the way, against the golden values: experts and their weights, index rows,
//! candidate rows, Engram rows, streams and the final hidden state.

use luce_model::StageKind;

use crate::cases::Case;
use crate::rig::{Rig, Values};

/// Gap above which a choice must not flip in f32.
const MARGIN: f32 = 1e-5;

/// Comparison of one case.
#[derive(Default)]
pub(crate) struct Report {
    /// Choices compared.
    pub(crate) compared: usize,
    /// Choices whose margin is within the arithmetic's noise.
    pub(crate) skipped: usize,
    /// The first that differ.
    pub(crate) wrong: Vec<String>,
    /// Largest difference of an expert's weight.
    pub(crate) weight: f32,
    /// Largest difference of a stream value, relative to the streams' root mean square.
    pub(crate) streams: f32,
    /// Of `hidden_last` and `engram_last`, relative to their own.
    pub(crate) hidden: f32,
}

struct Compare<'a> {
    rig: &'a Rig,
    case: &'a Case<'a>,
    values: &'a Values,
    report: Report,
}

/// Compares everything that the case stores.
pub(crate) fn compare(rig: &Rig, case: &Case, values: &Values) -> Report {
    let mut c = Compare { rig, case, values, report: Report::default() };
    c.experts();
    c.index_rows();
    c.candidates();
    c.engram();
    c.streams();
    c.report
}

fn rms(x: &[f32]) -> f32 {
    (x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / x.len() as f64).sqrt() as f32
}

fn worst(got: &[f32], want: &[f32], scale: f32) -> f32 {
    got.iter().zip(want).map(|(a, b)| if a.is_nan() { f32::MAX } else { (a - b).abs() / scale }).fold(0.0, f32::max)
}

impl Compare<'_> {
    fn layers(&self) -> std::ops::Range<u16> {
        0..self.rig.config.layers
    }

    fn check(&mut self, what: &str, t: usize, margin: Option<f32>, got: &[i32], want: &[i32]) {
        if margin.is_some_and(|m| m <= MARGIN) {
            self.report.skipped += 1;
            return;
        }
        self.report.compared += 1;
        if got != want && self.report.wrong.len() < 5 {
            self.report.wrong.push(format!("{} {what} at {t}: {got:?}, wanted {want:?}", self.case.name));
        }
    }

    fn experts(&mut self) {
        let (want, weights) = (self.case.ints("experts").unwrap(), self.case.floats("expert_weights").unwrap());
        let margin = self.case.floats("margin.router").unwrap();
        let (n, k) = (self.case.tokens.len(), self.rig.config.experts_used as usize);
        for l in self.layers() {
            let (_, ids) = self.values.get("ffn.ids", l, StageKind::Route, i32::from_le_bytes);
            let (_, shares) = self.values.get("ffn.weights", l, StageKind::Route, f32::from_le_bytes);
            for t in 0..n {
                let mut row: Vec<(i32, f32)> = (t * k..(t + 1) * k).map(|i| (ids[i], shares[i])).collect();
                row.sort_by_key(|r| r.0);
                let at = (usize::from(l) * n + t) * k;
                let got: Vec<i32> = row.iter().map(|r| r.0).collect();
                let hash = self.rig.config.hash_routed(l.into());
                let margin = (!hash).then_some(margin[t]);
                self.check(&format!("experts of layer {l}"), t, margin, &got, &want[at..at + k]);
                if got == want[at..at + k] {
                    let got: Vec<f32> = row.iter().map(|r| r.1).collect();
                    self.report.weight = self.report.weight.max(worst(&got, &weights[at..at + k], 1.0));
                }
            }
        }
    }

    fn index_rows(&mut self) {
        let margin = self.case.floats("margin.index").unwrap_or_default();
        for l in self.layers() {
            let Some(want) = self.case.ints(&format!("index_rows.{l}")) else { continue };
            let (width, selected) = self.values.get("selected", l, StageKind::Attention, i32::from_le_bytes);
            for (t, (row, want)) in selected.chunks_exact(width).zip(want.chunks_exact(width - 1)).enumerate() {
                let mut got = row[1..=row[0] as usize].to_vec();
                got.sort_unstable();
                got.resize(width - 1, -1);
                self.check(&format!("index rows of layer {l}"), t, Some(margin[t]), &got, want);
            }
        }
    }

    fn candidates(&mut self) {
        let Some(want) = self.case.ints("candidate_rows") else { return };
        let margin = self.case.floats("margin.candidate");
        let kept = self.rig.config.candidates.expect("a model with golden candidates has them");
        let ratio = self.rig.config.ratio(kept.source.into()) as usize;
        let rows = (self.case.tokens.len() / ratio) as i32;
        let (width, blocks) = self.values.get("candidates", kept.source, StageKind::Attention, i32::from_le_bytes);
        let room = (kept.blocks * kept.block_size) as usize;
        for (t, (row, want)) in blocks.chunks_exact(width).zip(want.chunks_exact(room)).enumerate() {
            let size = kept.block_size as i32;
            let mut got: Vec<i32> =
                row[1..=row[0] as usize].iter().flat_map(|b| b * size..(b + 1) * size).filter(|&r| r < rows).collect();
            got.sort_unstable();
            got.resize(room, -1);
            self.check("candidate rows", t, margin.as_ref().map(|m| m[t]), &got, want);
        }
    }

    fn engram(&mut self) {
        for l in self.layers() {
            let Some(want) = self.case.ints(&format!("engram_rows.{l}")) else { continue };
            let (width, got) = self.values.get("engram.ids", l, StageKind::Engram, i32::from_le_bytes);
            for (t, (got, want)) in got.chunks_exact(width).zip(want.chunks_exact(width)).enumerate() {
                self.check(&format!("Engram rows of layer {l}"), t, None, got, want);
            }
            let last = self.case.floats(&format!("engram_last.{l}")).unwrap();
            let got = self.last_streams(l, StageKind::Engram);
            self.report.hidden = self.report.hidden.max(worst(&got, &last, rms(&last)));
        }
    }

    /// The first eight values of each stream, last position.
    fn last_streams(&self, layer: u16, stage: StageKind) -> Vec<f32> {
        let (width, all) = self.values.get("streams", layer, stage, f32::from_le_bytes);
        let row = &all[all.len() - width..];
        row.chunks_exact(self.rig.config.hidden as usize).flat_map(|s| s[..8].to_vec()).collect()
    }

    fn streams(&mut self) {
        let (last, all) = (self.case.floats("streams_last").unwrap(), self.case.floats("streams_rms").unwrap());
        let n = self.case.tokens.len();
        let per_layer = last.len() / usize::from(self.rig.config.layers);
        for l in self.layers() {
            let (width, got) = self.values.get("streams", l, StageKind::Join, f32::from_le_bytes);
            let i = usize::from(l);
            let want = &all[i * n..(i + 1) * n];
            for (t, row) in got.chunks_exact(width).enumerate() {
                let off = (rms(row) - want[t]).abs() / want[t];
                self.report.streams = self.report.streams.max(off);
            }
            let got = self.last_streams(l, StageKind::Join);
            let off = worst(&got, &last[i * per_layer..(i + 1) * per_layer], want[n - 1]);
            self.report.streams = self.report.streams.max(off);
        }
        let hidden = self.case.floats("hidden_last").unwrap();
        let (width, got) = self.values.get("hidden", self.rig.config.layers, StageKind::Head, f32::from_le_bytes);
        let off = worst(&got[got.len() - width..], &hidden, rms(&hidden));
        self.report.hidden = self.report.hidden.max(off);
    }
}
