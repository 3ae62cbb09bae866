//! What the suite cannot ask of every device: the queue's bound, its time limits, and what a failure says.

use std::sync::Arc;
use std::time::Duration;

use luce_core::{DType, Op};
use luce_device::conformance::write;
use luce_device::{BandLayout, Device, DeviceError, Launch, Memory, QueueId, RowFacts, Timeline, View, Wait};
use luce_device_cpu::{CpuConfig, CpuDevice};

const QUEUE: QueueId = QueueId(0);

fn device(change: impl Fn(&mut CpuConfig)) -> CpuDevice {
    let mut config = CpuConfig { threads: 2, memory: Some(1 << 20), ..CpuConfig::default() };
    change(&mut config);
    CpuDevice::new(&config).expect("the device starts")
}

fn end(timeline: &Timeline, value: u64) -> Wait {
    timeline.wait(value, Duration::ZERO, Duration::from_secs(30))
}

#[test]
fn a_full_queue_refuses_instead_of_blocking_and_works_on_when_it_is_not() {
    let mut device = device(|c| c.queue_depth = 4);
    let band = device.alloc(4096, Memory::Shared).expect("a small buffer");
    let segment = device.prepare(&[], band, BandLayout { max_rows: 1 }).expect("an empty segment");
    let gate = Arc::new(Timeline::new());
    device.wait(QUEUE, &gate, 1).expect("wait");
    // The wait itself may or may not have left the ring.
    let results: Vec<_> = (0..6).map(|_| device.launch(QUEUE, segment, Launch::default())).collect();
    let taken = results.iter().filter(|r| r.is_ok()).count() as u64;
    assert!((3..=4).contains(&taken), "a queue of 4 took {taken} launches");
    match results.last() {
        Some(Err(DeviceError::Invalid(text))) => assert!(text.contains("queue_depth"), "{text}"),
        other => panic!("a full queue said {other:?}"),
    }
    gate.signal(1);
    let timeline = device.timeline(QUEUE);
    assert_eq!(end(&timeline, taken), Wait::Reached);
    let value = device.launch(QUEUE, segment, Launch::default()).expect("there is room again");
    assert_eq!(value, taken + 1, "a refused launch uses up no value");
    assert_eq!(end(&timeline, value), Wait::Reached);
}

#[test]
fn a_wait_beyond_its_limit_fails_the_queue_and_says_what_it_waited_for() {
    let mut device = device(|c| c.wait_limit_ms = 20);
    device.wait(QUEUE, &Arc::new(Timeline::new()), 5).expect("wait");
    let timeline = device.timeline(QUEUE);
    assert_eq!(end(&timeline, 1), Wait::Failed);
    let reason = timeline.failure().expect("failed");
    assert!(reason.contains("20 ms") && reason.contains("value 5"), "{reason}");
}

#[test]
fn dropping_a_device_that_waits_neither_hangs_nor_leaves_its_followers_waiting() {
    let mut device = device(|_| ());
    let (timeline, buffer) = (device.timeline(QUEUE), device.alloc(64, Memory::Shared).expect("a small buffer"));
    let host = device.export(buffer).expect("a shared buffer");
    device.wait(QUEUE, &Arc::new(Timeline::new()), 1).expect("wait");
    let view = View { buffer, offset: 0, dtype: DType::I8, width: 64, rows: 1, planes: 1 };
    let value = device.copy_in(QUEUE, &host, 0, view.span()).expect("copy_in");
    let start = std::time::Instant::now();
    drop(device);
    assert!(start.elapsed() < Duration::from_secs(10), "the default limit is a minute");
    assert_eq!(end(&timeline, value), Wait::Failed);
}

#[test]
fn a_band_description_that_leads_outside_fails_the_queue_with_row_and_reason() {
    let good = RowFacts { token: 1, position: 3, slot: 1, end_row: 1, first_position: 3, ..RowFacts::default() };
    let bad = [
        (RowFacts { token: 4, ..good }, "token 4"),
        (RowFacts { slot: 2, ..good }, "slot 2"),
        (RowFacts { end_row: 2, ..good }, "rows 0..2"),
        (RowFacts { position: 4, ..good }, "position 4"),
    ];
    for (facts, expected) in bad {
        let mut device = device(|_| ());
        let band = device.alloc(4096, Memory::Shared).expect("a small buffer");
        let buffer = device.alloc(4096, Memory::Device).expect("a small buffer");
        let view = |offset, planes, rows| View { buffer, offset, dtype: DType::F32, width: 4, rows, planes };
        let (table, x, ring) = (view(0, 1, 4), view(64, 1, 1), view(128, 2, 4));
        let ops = [Op::Embed { table, streams: x, copies: 1 }, Op::RingWrite { x, ring }];
        let segment = device.prepare(&ops, band, BandLayout { max_rows: 1 }).expect("right operations");
        let host = device.export(band).expect("a shared buffer");
        let timeline = device.timeline(QUEUE);
        let launch = Launch { rows: 1, ..Launch::default() };
        write(&host, 0, bytemuck::bytes_of(&good));
        let value = device.launch(QUEUE, segment, launch).expect("launch");
        assert_eq!(end(&timeline, value), Wait::Reached, "{:?}", timeline.failure());
        write(&host, 0, bytemuck::bytes_of(&facts));
        let value = device.launch(QUEUE, segment, launch).expect("launch");
        assert_eq!(end(&timeline, value), Wait::Failed);
        let reason = timeline.failure().expect("failed");
        assert!(reason.contains("band row 0") && reason.contains(expected), "{reason}");
    }
}

#[test]
fn a_segment_whose_buffer_was_freed_is_not_launched() {
    let mut device = device(|_| ());
    let band = device.alloc(4096, Memory::Shared).expect("a small buffer");
    let buffer = device.alloc(64, Memory::Device).expect("a small buffer");
    let out = View { buffer, offset: 0, dtype: DType::F32, width: 4, rows: 1, planes: 1 };
    let segment = device.prepare(&[Op::OneHot { out }], band, BandLayout { max_rows: 1 }).expect("a right operation");
    device.free(buffer).expect("a live buffer");
    let result = device.launch(QUEUE, segment, Launch { rows: 1, ..Launch::default() });
    assert!(matches!(&result, Err(DeviceError::Invalid(text)) if text.contains("freed")), "{result:?}");
}

#[test]
fn settings_that_make_no_sense_are_refused_by_key() {
    for (config, key) in [
        (CpuConfig { threads: 5000, ..CpuConfig::default() }, "threads"),
        (CpuConfig { queue_depth: 0, ..CpuConfig::default() }, "queue_depth"),
        (CpuConfig { threads: 1024, pin: true, ..CpuConfig::default() }, "pin"),
    ] {
        match CpuDevice::new(&config) {
            Err(DeviceError::Invalid(text)) => assert!(text.contains(key), "{text}"),
            Err(other) => panic!("{key}: {other}"),
            Ok(_) => panic!("{key} was taken"),
        }
    }
}
