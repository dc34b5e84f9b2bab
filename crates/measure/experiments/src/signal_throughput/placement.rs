//! The processors of the pairs: one [`PairProcessors`] per pair, on the machine or in a virtual
//! Unix.

use crate::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PairProcessors {
    pub(super) receiver: usize,
    pub(super) sender: usize,
}

pub(super) fn of_machine(
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
        None => Err(unknown("signal-throughput", "placement", placement)),
    }
}

/// Returns the virtual processors of `pairs` pairs for a placement, and the number of processors
/// that the system needs for the placement.
pub(super) fn of_system(
    placement: &str,
    pairs: usize,
    processors: usize,
) -> Result<(Vec<PairProcessors>, usize)> {
    let same = |processor| PairProcessors { receiver: processor, sender: processor };
    // The master is processor 0.
    let all: Vec<usize> = (0..processors).collect();
    Ok(match placement {
        "same-core" => (vec![same(0); pairs], 1),
        _ if processors < 2 => skip!("needs two processors"),
        "cross-core" => (vec![PairProcessors { receiver: 0, sender: 1 }; pairs], 2),
        // Every process has to migrate to the master from processor 1.
        "off-master" => (vec![same(1); pairs], 2),
        "apart" => ((0..pairs).map(|pair| same(pair % processors)).collect(), processors),
        "spread" => (spread(pairs, &all), processors),
        "spread-off-master" => (spread(pairs, &all[1..]), processors),
        other => return Err(unknown("signal-throughput", "placement", other)),
    })
}

/// Spreads pairs over all allowed processors, pinned. Processes take the processors in order,
/// receiver and sender in turn, and every round begins one processor further. Every processor
/// therefore has the same number of processes (except in the last, shorter round), no pair shares a
/// processor, and no processor has senders only.
fn spread(pairs: usize, allowed: &[usize]) -> Vec<PairProcessors> {
    let all = allowed.len().max(1);
    let on = |process: usize| allowed.get((process + process / all) % all).copied().unwrap_or(0);
    (0..pairs)
        .map(|pair| PairProcessors { receiver: on(2 * pair), sender: on(2 * pair + 1) })
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
                let all = spread(pairs, &allowed);
                assert!(all.iter().all(|one| one.receiver != one.sender), "{all:?}");
                let on = |cpu: usize| {
                    let of_pair = |one: &PairProcessors| {
                        usize::from(one.receiver == cpu) + usize::from(one.sender == cpu)
                    };
                    all.iter().map(of_pair).sum::<usize>()
                };
                let counts: Vec<usize> = allowed.iter().map(|&cpu| on(cpu)).collect();
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(most - least <= 1, "{pairs} pairs on {processors}: {counts:?}");
            }
        }
    }

    #[test]
    fn spread_mixes_ends_on_two_processors_and_uses_the_only_one() {
        let receivers = spread(4, &[0, 1]).into_iter().map(|one| one.receiver);
        assert!(receivers.eq([0, 1, 0, 1]));
        assert!(spread(3, &[5]).iter().all(|one| (one.receiver, one.sender) == (5, 5)));
    }

    #[test]
    fn virtual_uniprocessor_has_one_placement() {
        assert!(of_system("same-core", 1, 1).is_ok());
        assert!(matches!(of_system("apart", 2, 1), Err(MeasureError::Skipped(_))));
        let unknown = of_system("on-the-moon", 1, 2).expect_err("no such placement");
        assert!(unknown.why().contains("on-the-moon"), "{unknown}");
    }
}
