//! Memory, submissions, timelines and failures.

use std::sync::Arc;
use std::time::Duration;

use luce_core::HostBuffer;

use super::lab::{LAYOUT, Lab, MAX_ROWS, QUEUE, finish};
use super::{Make, host};
use crate::{BufferId, DeviceError, Launch, Memory, QueueId, SegmentId, Span, Timeline, Wait};

/// The cases that need no arithmetic.
pub(super) fn run(make: Make<'_>) {
    memory_is_counted_and_a_request_above_the_budget_says_the_sizes(make);
    only_shared_buffers_are_exported_and_imports_are_the_same_memory(make);
    ranges_outside_buffers_are_refused(make);
    launches_above_capacity_are_refused(make);
    submissions_return_before_the_work_and_count_up_in_order(make);
    a_device_waits_for_another(make);
    a_failed_timeline_fails_who_waits_for_it(make);
}

fn memory_is_counted_and_a_request_above_the_budget_says_the_sizes(make: Make<'_>) {
    let mut device = make();
    let free = device.memory_free();
    assert!(free <= device.info().memory && free >= 64 << 20, "a suite's device has at least 64 MiB");
    match device.alloc(free + 1, Memory::Device) {
        Err(DeviceError::OutOfMemory { wanted, free: left, .. }) => assert_eq!((wanted, left), (free + 1, free)),
        other => panic!("{} bytes of {free} gave {other:?}", free + 1),
    }
    let buffer = device.alloc(1 << 20, Memory::Device).expect("1 MiB of 64");
    assert!(device.memory_free() <= free - (1 << 20), "an allocation counts");
    device.free(buffer).expect("a live buffer");
    assert_eq!(device.memory_free(), free, "a freed buffer is given back");
    for id in [buffer, BufferId(u32::MAX)] {
        assert!(matches!(device.free(id), Err(DeviceError::Invalid(_))), "free of a buffer that does not exist");
    }
}

fn only_shared_buffers_are_exported_and_imports_are_the_same_memory(make: Make<'_>) {
    let (mut one, mut two) = (make(), make());
    let shared = one.alloc(256, Memory::Shared).expect("a small buffer");
    let host = one.export(shared).expect("a shared buffer");
    assert_eq!(host.len(), 256);
    assert_eq!(host::read(&host, 0, 256), [0; 256], "memory is zeroed");
    let imported = two.import(&host).expect("import");
    assert!(two.export(imported).expect("an imported buffer is shared").same(&host));
    let own = one.alloc(256, Memory::Device).expect("a small buffer");
    assert!(matches!(one.export(own), Err(DeviceError::Invalid(_))), "export of device memory");
}

fn ranges_outside_buffers_are_refused(make: Make<'_>) {
    let mut device = make();
    let buffer = device.alloc(128, Memory::Device).expect("a small buffer");
    let host = HostBuffer::new(128).expect("a small buffer");
    let span = |offset, bytes| Span { buffer, offset, bytes };
    for (at, to) in [(0, span(64, 65)), (64, span(0, 65)), (0, span(u64::MAX, 2)), (u64::MAX, span(0, 2))] {
        let result = device.copy_in(QUEUE, &host, at, to);
        assert!(matches!(result, Err(DeviceError::Invalid(_))), "copy_in {at} {to:?}: {result:?}");
        let result = device.copy_out(QUEUE, to, &host, at);
        assert!(matches!(result, Err(DeviceError::Invalid(_))), "copy_out {at} {to:?}: {result:?}");
    }
    let gone = Span { buffer: BufferId(u32::MAX), offset: 0, bytes: 1 };
    assert!(matches!(device.copy_in(QUEUE, &host, 0, gone), Err(DeviceError::Invalid(_))));
    let queue = QueueId(device.info().queues);
    assert!(matches!(device.copy_in(queue, &host, 0, span(0, 1)), Err(DeviceError::Invalid(_))), "unknown queue");
}

fn launches_above_capacity_are_refused(make: Make<'_>) {
    let mut lab = Lab::new(make);
    let segment = lab.prepare(&[]);
    let fits = Launch { rows: MAX_ROWS, picks: 0, groups: [0; 3] };
    let more = MAX_ROWS + 1;
    for launch in
        [Launch { rows: more, ..fits }, Launch { picks: more, ..fits }, Launch { groups: [0, more, 0], ..fits }]
    {
        let result = lab.device.launch(QUEUE, segment, launch);
        assert!(matches!(result, Err(DeviceError::Invalid(_))), "{launch:?}: {result:?}");
    }
    let result = lab.device.launch(QUEUE, SegmentId(u32::MAX), Launch::default());
    assert!(matches!(result, Err(DeviceError::Invalid(_))), "unknown segment: {result:?}");
    let small = lab.device.alloc(LAYOUT.bytes() as u64 - 1, Memory::Shared).expect("a small buffer");
    assert!(lab.device.prepare(&[], small, LAYOUT).is_err(), "a band buffer that is too small");
    let own = lab.device.alloc(LAYOUT.bytes() as u64, Memory::Device).expect("a small buffer");
    assert!(lab.device.prepare(&[], own, LAYOUT).is_err(), "a band buffer that is not shared");
}

fn submissions_return_before_the_work_and_count_up_in_order(make: Make<'_>) {
    let mut lab = Lab::new(make);
    let (gate, timeline) = (Arc::new(Timeline::new()), lab.device.timeline(QUEUE));
    let segment = lab.prepare(&[]);
    assert_eq!(timeline.reached(), 0, "nothing has been submitted");
    lab.device.wait(QUEUE, &gate, 7).expect("wait");
    let values: Vec<u64> =
        (0..20).map(|_| lab.device.launch(QUEUE, segment, Launch::default()).expect("launch")).collect();
    assert_eq!(values, (1..=20).collect::<Vec<u64>>(), "each submission counts one");
    gate.signal(6);
    let early = timeline.wait(1, Duration::ZERO, Duration::from_millis(2));
    assert_eq!(early, Wait::TimedOut, "the queue went on before the awaited value");
    gate.signal(7);
    finish(&timeline, 20);
    // Values that have been reached already hold nobody up.
    lab.device.wait(QUEUE, &gate, 3).expect("wait");
    let value = lab.device.launch(QUEUE, segment, Launch::default()).expect("launch");
    finish(&timeline, value);
}

fn a_device_waits_for_another(make: Make<'_>) {
    let (mut one, mut two) = (Lab::new(make), Lab::new(make));
    let (first, second) = (one.prepare(&[]), two.prepare(&[]));
    let gate = Arc::new(Timeline::new());
    let (ahead, behind) = (one.device.timeline(QUEUE), two.device.timeline(QUEUE));
    for round in 1..=20 {
        one.device.wait(QUEUE, &gate, round).expect("wait");
        let value = one.device.launch(QUEUE, first, Launch::default()).expect("launch");
        two.device.wait(QUEUE, &ahead, value).expect("wait");
        let last = two.device.launch(QUEUE, second, Launch::default()).expect("launch");
        assert!(behind.reached() < last, "round {round}: went on before the other device");
        gate.signal(round);
        finish(&behind, last);
        assert!(ahead.reached() >= value);
    }
}

fn a_failed_timeline_fails_who_waits_for_it(make: Make<'_>) {
    let (mut one, mut two) = (Lab::new(make), Lab::new(make));
    let (first, second) = (one.prepare(&[]), two.prepare(&[]));
    let gate = Arc::new(Timeline::new());
    let (ahead, behind) = (one.device.timeline(QUEUE), two.device.timeline(QUEUE));
    one.device.wait(QUEUE, &gate, 1).expect("wait");
    let value = one.device.launch(QUEUE, first, Launch::default()).expect("launch");
    two.device.wait(QUEUE, &ahead, value).expect("wait");
    let last = two.device.launch(QUEUE, second, Launch::default()).expect("launch");
    gate.fail("the suite pulled the plug");
    assert_eq!(behind.wait(last, Duration::ZERO, Duration::from_secs(60)), Wait::Failed);
    for (lab, segment, timeline) in [(&mut one, first, ahead), (&mut two, second, behind)] {
        let reason = timeline.failure().expect("failed").to_owned();
        assert!(reason.contains("pulled the plug"), "the cause is lost: {reason}");
        match lab.device.launch(QUEUE, segment, Launch::default()) {
            Err(DeviceError::Failed(text)) => assert!(text.contains(&reason), "{text}"),
            other => panic!("a failed queue took a launch: {other:?}"),
        }
        assert!(matches!(lab.device.wait(QUEUE, &gate, 1), Err(DeviceError::Failed(_))));
    }
}

/// The cases that need copies.
pub(super) fn run_copies(make: Make<'_>) {
    let bytes: Vec<u8> = (0..=255).cycle().take(3000).collect();
    let (mut one, mut two) = (make(), make());
    let staging = HostBuffer::new(4000).expect("a small buffer");
    host::write(&staging, 500, &bytes);
    // Into one, through its exchange buffer, to two, and back to the host.
    let own = one.alloc(4096, Memory::Device).expect("a small buffer");
    let exchange = one.alloc(3000, Memory::Shared).expect("a small buffer");
    let host = one.export(exchange).expect("a shared buffer");
    let there = two.import(&host).expect("import");
    let inner = Span { buffer: own, offset: 96, bytes: 3000 };
    let arrived = HostBuffer::new(3100).expect("a small buffer");
    one.copy_in(QUEUE, &staging, 500, inner).expect("copy_in");
    let sent = one.copy_out(QUEUE, inner, &host, 0).expect("copy_out");
    two.wait(QUEUE, &one.timeline(QUEUE), sent).expect("wait");
    let end = two.copy_out(QUEUE, Span { buffer: there, offset: 0, bytes: 3000 }, &arrived, 100).expect("copy_out");
    finish(&two.timeline(QUEUE), end);
    assert_eq!(host::read(&arrived, 100, 3000), bytes, "bytes changed on the way");
    assert_eq!(host::read(&arrived, 0, 100), [0; 100], "bytes before the destination were touched");
    let all = HostBuffer::new(4096).expect("a small buffer");
    let end = one.copy_out(QUEUE, Span { buffer: own, offset: 0, bytes: 4096 }, &all, 0).expect("copy_out");
    finish(&one.timeline(QUEUE), end);
    assert_eq!(host::read(&all, 0, 96), [0; 96], "memory is zeroed and copies stay in their range");
    assert_eq!(host::read(&all, 3096, 1000), [0; 1000], "memory is zeroed and copies stay in their range");
}
