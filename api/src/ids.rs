//! Ids that clients see: of answers, requests and tool calls. Never repeated, and not to be guessed from one another.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const LENGTH: usize = 24;

/// 24 letters and digits (142 bits): a counter through SipHash with keys that the system drew for this process.
pub(crate) fn unique() -> String {
    static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut id = String::with_capacity(LENGTH);
    // Ten digits in base 62 take 59.5 bits of a hash.
    for block in 0_u64.. {
        let mut bits = KEYS[0].hash_one((number, block)) ^ KEYS[1].hash_one((block, number));
        for _ in 0..10 {
            if id.len() == LENGTH {
                return id;
            }
            id.push(char::from(LETTERS[(bits % 62) as usize]));
            bits /= 62;
        }
    }
    unreachable!("the loop ends once the id is full")
}

/// The id of the call with this index in its answer; sorting ids keeps the order of the calls.
pub(crate) fn call(index: usize) -> String {
    format!("call_{index:02}_{}", unique())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_are_24_letters_and_digits() {
        let ids: std::collections::HashSet<String> = (0..1000).map(|_| unique()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 24 && id.bytes().all(|b| b.is_ascii_alphanumeric())));
        assert!(call(3).starts_with("call_03_"));
    }
}
