//! The processors of the pairs: one [`PairProcessors`] per pair.

use tontine_bench::machine::topology::Topology;
use tontine_host::error::{MeasureError, Result};

/// The processors of one pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PairProcessors {
    pub(super) receiver: usize,
    pub(super) sender: usize,
}

/// Returns the processors of `pairs` pairs for a placement.
///
/// # Errors
/// Returns `Skipped` if the machine has too few processors for the placement, and `Failed` if it is
/// unknown.
pub(super) fn of(
    placement: &str,
    pairs: usize,
    allowed: &[usize],
    topology: &Topology,
) -> Result<Vec<PairProcessors>> {
    if placement == "spread" {
        return Ok(spread(pairs, allowed));
    }
    match topology.placement(placement) {
        Some(place) => {
            let (receiver, sender) = (place.here, place.there);
            Ok(vec![PairProcessors { receiver, sender }; pairs])
        }
        None if placement == "cross-core" => Err(MeasureError::skip(
            "needs two processors: sender and receiver run at the same time, each on its own",
        )),
        None => Err(MeasureError::fail(format!("this machine has no placement `{placement}`"))),
    }
}

/// Spreads pairs over all allowed processors, pinned. Processes take the processors in order,
/// receiver and sender in turn, and every round begins one processor further. Every processor
/// therefore has the same number of processes (except in the last, shorter round), no pair shares a
/// processor, and no processor has senders only.
fn spread(pairs: usize, allowed: &[usize]) -> Vec<PairProcessors> {
    let all = allowed.len().max(1);
    let seat = |process: usize| allowed.get((process + process / all) % all).copied().unwrap_or(0);
    (0..pairs)
        .map(|pair| PairProcessors { receiver: seat(2 * pair), sender: seat(2 * pair + 1) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_balances_processors_and_separates_pairs() {
        for processors in 2..=12 {
            let allowed: Vec<usize> = (0..processors).map(|cpu| 3 * cpu).collect();
            for pairs in 1..=10 {
                let seats = spread(pairs, &allowed);
                assert!(seats.iter().all(|seat| seat.receiver != seat.sender), "{seats:?}");
                let on = |cpu: usize| {
                    let of_pair = |seat: &PairProcessors| {
                        usize::from(seat.receiver == cpu) + usize::from(seat.sender == cpu)
                    };
                    seats.iter().map(of_pair).sum::<usize>()
                };
                let counts: Vec<usize> = allowed.iter().map(|&cpu| on(cpu)).collect();
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(most - least <= 1, "{pairs} pairs on {processors}: {counts:?}");
            }
        }
    }

    #[test]
    fn spread_on_two_processors_mixes_senders_and_receivers() {
        let seats = spread(4, &[0, 1]);
        let receivers: Vec<usize> = seats.iter().map(|seat| seat.receiver).collect();
        assert_eq!(receivers, [0, 1, 0, 1]);
    }

    #[test]
    fn spread_on_one_processor_places_all_pairs_there() {
        assert!(spread(3, &[5]).iter().all(|seat| (seat.receiver, seat.sender) == (5, 5)));
    }
}
