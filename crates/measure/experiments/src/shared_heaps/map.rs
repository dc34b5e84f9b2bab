//! The map of a heap, from the report of its `check`: [`map_of`].

use tontine::heap::shared::{HeapReport, SlabStatus};
use tontine_bench::heap_map::{HeapMap, HeapMember, MappedSlab, SLAB, SlabUse};

/// Returns the map for a report of `check`. The names of members, by pid, are in `named`.
pub(super) fn map_of(moment: &str, report: &HeapReport, named: &[(u32, HeapMember)]) -> HeapMap {
    let mut members: Vec<HeapMember> = named.iter().map(|(_, owner)| owner.clone()).collect();
    let mut known: Vec<u32> = named.iter().map(|(pid, _)| *pid).collect();
    let mut number = |pid: u32| {
        known.iter().position(|one| *one == pid).unwrap_or_else(|| {
            known.push(pid);
            members.push(HeapMember { name: "another process".into(), dead: false });
            known.len() - 1
        })
    };
    let mut slabs: Vec<MappedSlab> = Vec::new();
    for found in &report.slabs {
        let (made, block) = match found.status {
            SlabStatus::Empty => (SlabUse::Empty, 0),
            SlabStatus::Claimed => (SlabUse::Fetched, 0),
            SlabStatus::Blocks(bytes) => (SlabUse::Blocks, bytes),
            SlabStatus::Part(0) | SlabStatus::Corrupted => (SlabUse::Damaged, 0),
            SlabStatus::Part(_) => (SlabUse::Part, 0),
            SlabStatus::Punching => (SlabUse::Punched, 0),
            _ => (SlabUse::Damaged, 0),
        };
        let mut slab = MappedSlab {
            made,
            block,
            owner: found.owner.map(&mut number),
            parked: found.parked,
            published: found.published,
            in_flight: found.in_flight,
            free: found.free,
            held: Vec::new(),
        };
        slab.held.extend(found.allocated.iter().map(|(pid, bytes)| (number(*pid), *bytes)));
        if made == SlabUse::Part
            && let Some(before) = slabs.last()
        {
            slab = MappedSlab { made, owner: slab.owner, ..before.clone() };
        }
        slabs.push(slab);
    }
    // A block of several slabs is recorded in each of them, so each slab is limited to its own
    // bytes.
    for slab in &mut slabs {
        let own = |bytes: &mut usize| *bytes = (*bytes).min(SLAB);
        [&mut slab.parked, &mut slab.published, &mut slab.in_flight, &mut slab.free]
            .into_iter()
            .chain(slab.held.iter_mut().map(|(_, bytes)| bytes))
            .for_each(own);
    }
    let all = slabs.len();
    while slabs.last().is_some_and(|slab| slab.made == SlabUse::Empty) {
        slabs.pop();
    }
    let beyond = all - slabs.len();
    let wrong = report.faults.len() + report.more_faults;
    let first = report.faults.first();
    let notes = first.map(|fault| format!("{wrong} errors, the first: {fault}"));
    let notes = notes.into_iter().collect();
    HeapMap { moment: moment.into(), notes, members, slabs, beyond }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine::heap::shared::Heap;

    #[test]
    fn heap_map_covers_every_byte() {
        let heap = Heap::create(16 * SLAB).expect("memory");
        let kept = heap.alloc(1_000).expect("memory");
        let parked = heap.alloc(2_000).expect("memory").into_handle();
        let large = heap.alloc(2 * SLAB + 1).expect("memory");
        let sent = heap.alloc(5_000).expect("memory").hand_over(heap.member()).expect("we live");
        let me = HeapMember { name: "the only one".into(), dead: false };
        let named = [(std::process::id(), me)];
        let map = map_of("now", &heap.check().expect("not forked"), &named);
        assert_eq!((map.notes.len(), map.members.len()), (0, 1));
        assert_eq!((map.committed(), map.slabs.len() + map.beyond), (6, 16));
        assert_eq!(map.held_by(0), 1_024 + 2_048 + 3 * SLAB);
        let sum = |of: fn(&MappedSlab) -> usize| map.slabs.iter().map(of).sum::<usize>();
        assert_eq!((sum(|slab| slab.parked), sum(|slab| slab.in_flight)), (2_048, 5_120));
        let made = |made| map.slabs.iter().filter(|slab| slab.made == made).count();
        assert_eq!((made(SlabUse::Blocks), made(SlabUse::Part)), (4, 2));
        assert!(map.slabs.iter().all(|slab| slab.owner == Some(0)));
        let json = serde_json::to_string(&map).expect("plain data");
        assert_eq!(serde_json::from_str::<HeapMap>(&json).expect("as written"), map);
        drop((kept, large));
        heap.free(parked).expect("ours");
        heap.take_back(sent).expect("not yet taken").free().expect("ours");
    }
}
