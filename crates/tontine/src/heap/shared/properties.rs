//! Tests of random calls by two threads and another process, against a model.
//!
//! If a first-fit heap of 1 MiB has space for a block, so has this heap. Each byte has one holder,
//! and has the value that this holder wrote. Using an old handle is an error. `check` finds no
//! fault after any step, and no block is left in the end. Sometimes the other process is killed.

#![allow(unsafe_code, reason = "forks")]

use std::collections::BTreeMap;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use proptest::prelude::*;

use super::class::SizeClass;
use super::layout::SLAB;
use super::{Handle, Heap, HeapError, HeapReport, Member, Parcel};

/// A call or its result: a code, and four numbers.
type CommandWords = [u64; 5];

const ALLOC: u64 = 0;
const FREE: u64 = 1;
const SEND: u64 = 2;
const ACCEPT: u64 = 3;
const TAKE_BACK: u64 = 4;
const TEND: u64 = 5;
const CHECK: u64 = 6;
const WHO: u64 = 7;

const DONE: u64 = 1;
const REFUSED: u64 = 0;

/// Maximum number of steps of a case: few enough that all large blocks fit into adjacent slabs.
const STEPS: usize = 60;

/// A step. If it has two numbers, the first one selects one of the three callers.
#[derive(Debug, Clone)]
enum SharedOp {
    Alloc(usize, usize),
    Free(usize, usize),
    /// A block is sent to the other process, or from that process to this one.
    Send(usize),
    Accept(usize),
    TakeBack(usize),
    /// A stale handle is used.
    Stale(usize, usize),
    Tend(usize),
    /// The second thread ends, and a new thread replaces it.
    Replace,
    /// The other process is killed, and a new process replaces it.
    Kill,
}

fn step() -> impl Strategy<Value = SharedOp> {
    let size =
        prop_oneof![8 => 0..3_000_usize, 3 => 3_000..34_000_usize, 2 => 34_000..90_000_usize];
    let (who, which) = (0..3_usize, 0..1_000_usize);
    prop_oneof![
        10 => (who.clone(), size).prop_map(|(who, size)| SharedOp::Alloc(who, size)),
        6 => (who.clone(), which.clone()).prop_map(|(who, which)| SharedOp::Free(who, which)),
        4 => which.clone().prop_map(SharedOp::Send),
        3 => which.clone().prop_map(SharedOp::Accept),
        1 => which.clone().prop_map(SharedOp::TakeBack),
        2 => (who.clone(), which).prop_map(|(who, which)| SharedOp::Stale(who, which)),
        1 => who.prop_map(SharedOp::Tend),
        1 => Just(SharedOp::Replace),
        1 => Just(SharedOp::Kill),
    ]
}

fn parcel(words: CommandWords) -> Parcel {
    let bytes: Vec<u8> = words[1..4].iter().flat_map(|word| word.to_le_bytes()).collect();
    Parcel::from_bytes(bytes.try_into().expect("three words"))
}

/// Makes a call. If the call panics, the caller receives no result.
fn obey(heap: &Heap, call: CommandWords) -> CommandWords {
    let [what, a, b, c, d] = call;
    let answer = |block: Result<super::Block<'_>, HeapError>, byte: Option<(u64, u64)>| match block
    {
        Ok(block) => {
            if let Some((len, byte)) = byte {
                assert!(block[..len as usize].iter().all(|found| u64::from(*found) == byte));
            }
            let handle = block.into_handle();
            [DONE, handle.offset, handle.generation, 0, 0]
        }
        Err(HeapError::Stale { .. } | HeapError::InvalidHandle { .. }) => [REFUSED; 5],
        Err(error) => panic!("{error}"),
    };
    match what {
        ALLOC => match heap.alloc(a as usize) {
            Ok(mut block) => {
                assert_eq!(block.len() as u64, a);
                block.fill(b as u8);
                answer(Ok(block), None)
            }
            Err(HeapError::Full { .. }) => [REFUSED; 5],
            Err(error) => panic!("{error}"),
        },
        FREE => {
            let freed = heap.claim(Handle { offset: a, generation: b });
            let found = answer(freed, (c > 0).then_some((c, d)));
            if found[0] == DONE {
                heap.free(Handle { offset: found[1], generation: found[2] }).expect("just claimed");
            }
            found
        }
        SEND => {
            let block = heap.claim(Handle { offset: a, generation: b }).expect("it is ours");
            let parcel = block.hand_over(Member::from_u64(c)).expect("it lives").to_bytes();
            let word =
                |at: usize| u64::from_le_bytes(parcel[at..at + 8].try_into().expect("eight"));
            [DONE, word(0), word(8), word(16), 0]
        }
        ACCEPT => answer(heap.accept(parcel(call)), Some((d >> 8, d & 0xff))),
        TAKE_BACK => answer(heap.take_back(parcel(call)), Some((d >> 8, d & 0xff))),
        TEND => [
            DONE,
            heap.recover_and_trim().expect("dead members are recovered").members as u64,
            0,
            0,
            0,
        ],
        CHECK => {
            let report = heap.check().expect("not forked");
            assert!(report.faults.is_empty(), "{report}");
            [DONE; 5]
        }
        _ => [DONE, heap.member().to_u64(), 0, 0, 0],
    }
}

/// Another process, itself a member, that makes the requested calls.
struct Other {
    pid: i32,
    calls: PipeWriter,
    answers: PipeReader,
}

impl Other {
    fn new(heap: &Heap) -> Self {
        let (mut requests, calls) = std::io::pipe().expect("a pipe");
        let (answers, mut answer) = std::io::pipe().expect("a pipe");
        // SAFETY: the child runs on a copy of this thread, and leaves through `_exit`.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                drop((calls, answers));
                let serve = || {
                    // SAFETY: the inherited descriptor stays open.
                    let own = unsafe { heap.rejoin() }.expect("it can be joined");
                    let mut bytes = [0; size_of::<CommandWords>()];
                    while requests.read_exact(&mut bytes).is_ok() {
                        let call = std::array::from_fn(|at| {
                            let word = bytes[8 * at..8 * at + 8].try_into().expect("eight bytes");
                            u64::from_le_bytes(word)
                        });
                        let found: Vec<u8> =
                            obey(&own, call).iter().flat_map(|word| word.to_le_bytes()).collect();
                        answer.write_all(&found).expect("the parent reads");
                    }
                };
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve));
                // SAFETY: the call ends this process.
                unsafe { libc::_exit(i32::from(done.is_err())) }
            }
            pid => Self { pid, calls, answers },
        }
    }

    fn call(&mut self, call: CommandWords) -> CommandWords {
        let bytes: Vec<u8> = call.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.calls.write_all(&bytes).expect("it listens");
        let mut found = [0; size_of::<CommandWords>()];
        self.answers.read_exact(&mut found).expect("it has not failed");
        std::array::from_fn(|at| {
            u64::from_le_bytes(found[8 * at..8 * at + 8].try_into().expect("eight bytes"))
        })
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // SAFETY: the pid names a child of this process that has not been reaped.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// A thread that makes the requested calls until the channel is closed.
struct CommandedThread<'a> {
    handle: std::thread::ScopedJoinHandle<'a, ()>,
    calls: SyncSender<CommandWords>,
    answers: Receiver<CommandWords>,
}

impl<'a> CommandedThread<'a> {
    fn new(scope: &'a std::thread::Scope<'a, '_>, heap: &'a Heap) -> Self {
        let (calls, requests) = sync_channel::<CommandWords>(1);
        let (answer, answers) = sync_channel(1);
        let handle = scope.spawn(move || {
            let _ = requests.iter().try_for_each(|call| answer.send(obey(heap, call)));
        });
        Self { handle, calls, answers }
    }

    /// Ends the thread, which has abandoned its arena when this function returns.
    fn end(self) {
        drop(self.calls);
        self.handle.join().expect("it has not failed");
    }

    fn call(&self, call: CommandWords) -> CommandWords {
        self.calls.send(call).expect("it listens");
        self.answers.recv().expect("it has not failed")
    }
}

/// The members of the model: this process, the other process, and dead processes.
const OURS: usize = 0;
const THEIRS: usize = 1;
const A_DEAD_ONES: usize = 2;

/// A block in the model.
#[derive(Debug, Clone, Copy)]
struct ModelBlockState {
    generation: u64,
    len: usize,
    byte: u8,
    /// [`OURS`], [`THEIRS`] or [`A_DEAD_ONES`].
    member: usize,
    /// Address in the [`ReferenceHeap`] heap, if that had space.
    reference: Option<usize>,
}

/// A heap of [`ReferenceHeap::BYTES`], as a list of its blocks: their addresses and sizes. A block
/// occupies 16 bytes more than requested, and a multiple of 16.
#[derive(Default)]
struct ReferenceHeap {
    blocks: BTreeMap<usize, usize>,
}

impl ReferenceHeap {
    const BYTES: usize = 1 << 20;

    /// Allocates the first gap that is large enough.
    fn alloc(&mut self, len: usize) -> Option<usize> {
        let size = (len.max(1) + 16).next_multiple_of(16);
        let mut at = 0;
        for (block, taken) in &self.blocks {
            if block - at >= size {
                break;
            }
            at = block + taken;
        }
        (at + size <= Self::BYTES).then(|| {
            self.blocks.insert(at, size);
            at
        })
    }
}

struct ModelHeap<'a> {
    scope: &'a std::thread::Scope<'a, 'a>,
    heap: &'a Heap,
    thread: CommandedThread<'a>,
    other: Other,
    reference: ReferenceHeap,
    held: BTreeMap<u64, ModelBlockState>,
    /// Blocks in flight; `ModelBlockState` names the member that sent each.
    sent: Vec<(CommandWords, ModelBlockState)>,
    old: Vec<Handle>,
    earlier: Option<HeapReport>,
    next: u8,
}

impl ModelHeap<'_> {
    fn call(&mut self, who: usize, call: CommandWords) -> CommandWords {
        match who {
            0 => obey(self.heap, call),
            1 => self.thread.call(call),
            _ => self.other.call(call),
        }
    }

    fn alloc(&mut self, who: usize, len: usize, ample: bool) {
        self.next = self.next.wrapping_add(1);
        let byte = self.next;
        let reference = self.reference.alloc(len);
        let found = self.call(who, [ALLOC, len as u64, byte.into(), 0, 0]);
        if found[0] != DONE {
            assert!(!ample || reference.is_none(), "the first-fit heap has space for {len}");
            let report = self.heap.check().expect("not forked");
            let empty = |slab: &super::SlabMap| slab.status == super::SlabStatus::Empty;
            let slabs = report.slabs.iter().filter(|slab| empty(slab)).count();
            assert!(slabs == 0 || len > SLAB / 2, "{slabs} slabs are empty");
            // The process whose allocation failed has no empty slab either.
            let pid = self.other.pid.unsigned_abs();
            let is_free = |slab: &&super::SlabMap| slab.allocated.is_empty() && slab.in_flight == 0;
            let own = report.slabs.iter().filter(|slab| slab.owner == Some(pid));
            let blocks = |slab: &&super::SlabMap| {
                matches!(slab.status, super::SlabStatus::Blocks(_)) && is_free(slab)
            };
            assert!(who != 2 || len > SLAB / 2 || own.filter(blocks).count() == 0, "{report}");
        }
        let Some(held) = (found[0] == DONE).then_some(ModelBlockState {
            generation: found[2],
            len,
            byte,
            member: who / 2,
            reference,
        }) else {
            self.forget(reference);
            return;
        };
        let before = self.all().filter(|(at, _)| *at <= found[1]).max_by_key(|(at, _)| *at);
        assert!(before.is_none_or(|(at, held)| at + (held.len.max(1) as u64) <= found[1]));
        let behind = self.all().map(|(at, _)| at).filter(|at| *at >= found[1]).min();
        assert!(behind.is_none_or(|at| found[1] + len.max(1) as u64 <= at));
        self.held.insert(found[1], held);
    }

    fn all(&self) -> impl Iterator<Item = (u64, ModelBlockState)> {
        let sent = self.sent.iter().map(|(parcel, held)| (parcel[1], *held));
        self.held.iter().map(|(at, held)| (*at, *held)).chain(sent)
    }

    fn forget(&mut self, reference: Option<usize>) {
        if let Some(block) = reference {
            self.reference.blocks.remove(&block).expect("it is allocated");
        }
    }

    fn nth(&self, which: usize) -> Option<(u64, ModelBlockState)> {
        let all = self.held.iter().nth(which % self.held.len().max(1));
        all.map(|(offset, held)| (*offset, *held))
    }

    fn free(&mut self, who: usize, which: usize) {
        let Some((offset, held)) = self.nth(which) else { return };
        // The call is made by any thread of the member that holds the block.
        let who = if held.member == THEIRS { 2 } else { who % 2 };
        let call = [FREE, offset, held.generation, held.len as u64, held.byte.into()];
        assert_eq!(self.call(who, call)[0], DONE);
        self.done_with(offset, held);
    }

    fn done_with(&mut self, offset: u64, held: ModelBlockState) {
        self.held.remove(&offset);
        self.old.push(Handle { offset, generation: held.generation });
        self.forget(held.reference);
    }

    fn send(&mut self, which: usize) {
        let Some((offset, held)) = self.nth(which) else { return };
        let (from, to) = if held.member == THEIRS { (2, 0) } else { (which % 2, 2) };
        let to = self.call(to, [WHO; 5])[1];
        let parcel = self.call(from, [SEND, offset, held.generation, to, 0]);
        self.old.push(Handle { offset, generation: held.generation });
        self.held.remove(&offset);
        self.sent.push((parcel, held));
    }

    fn land(&mut self, what: u64, which: usize) {
        if self.sent.is_empty() {
            return;
        }
        let at = which % self.sent.len();
        if what == TAKE_BACK && self.sent[at].1.member == A_DEAD_ONES {
            return;
        }
        let (parcel, mut held) = self.sent.remove(at);
        if what == ACCEPT {
            held.member = if held.member == OURS { THEIRS } else { OURS };
        }
        let who = if held.member == THEIRS { 2 } else { which % 2 };
        let content = (held.len as u64) << 8 | u64::from(held.byte);
        let call = [what, parcel[1], parcel[2], parcel[3], content];
        let found = self.call(who, call);
        assert_eq!((found[0], found[1]), (DONE, parcel[1]));
        assert_eq!(self.call(who, call)[0], REFUSED, "a second time");
        held.generation = found[2];
        self.held.insert(parcel[1], held);
    }

    fn stale(&mut self, who: usize, which: usize) {
        let Some(handle) = self.old.get(which % self.old.len().max(1)).copied() else { return };
        let found = self.call(who, [FREE, handle.offset, handle.generation, 0, 0]);
        assert_eq!(found[0], REFUSED, "{handle:?} is old");
        // A valid handle of another member's block is refused too.
        let Some((offset, held)) = self.nth(which) else { return };
        let stranger = if held.member == THEIRS { who % 2 } else { 2 };
        let found = self.call(stranger, [FREE, offset, held.generation, 0, 0]);
        assert_eq!(found[0], REFUSED, "{held:?} is another member's");
    }

    fn kill(&mut self) {
        let member = Member::from_u64(self.other.call([WHO; 5])[1]);
        self.other = Other::new(self.heap);
        self.other.call([WHO; 5]);
        self.heap.recover_and_trim().expect("dead members are recovered");
        assert!(!self.heap.is_alive(member));
        let lost: Vec<_> = self
            .held
            .iter()
            .filter(|(_, held)| held.member == THEIRS)
            .map(|(at, h)| (*at, *h))
            .collect();
        for (offset, held) in lost {
            self.done_with(offset, held);
        }
        // Blocks sent to that member are reclaimed. Blocks that it has sent can still be accepted.
        let expected = self.sent.iter().filter(|(_, held)| held.member == OURS).count();
        assert_eq!(self.heap.reclaim_sent(member).expect("not forked"), expected);
        let (back, still): (Vec<_>, _) =
            std::mem::take(&mut self.sent).into_iter().partition(|(_, held)| held.member == OURS);
        for (_, held) in back {
            self.forget(held.reference);
        }
        self.sent = still;
        for (_, held) in &mut self.sent {
            held.member = A_DEAD_ONES;
        }
    }

    fn check(&mut self) {
        let parcels = self.sent.iter().map(|(words, _)| parcel(*words));
        let report = self.heap.check().expect("not forked").with_parcels(parcels);
        let report = match &self.earlier {
            Some(earlier) => report.with_earlier(earlier),
            None => report,
        };
        assert!(report.faults.is_empty(), "{report}");
        let bytes: usize = self.all().map(|(_, held)| SizeClass::of(held.len).bytes()).sum();
        assert_eq!(report.in_use(), bytes, "{report}");
        self.earlier = Some(report);
        for who in 1..3 {
            self.call(who, [CHECK; 5]);
        }
    }

    fn take(&mut self, step: SharedOp, ample: bool) {
        match step {
            SharedOp::Alloc(who, len) => self.alloc(who, len, ample),
            SharedOp::Free(who, which) => self.free(who, which),
            SharedOp::Send(which) => self.send(which),
            SharedOp::Accept(which) => self.land(ACCEPT, which),
            SharedOp::TakeBack(which) => self.land(TAKE_BACK, which),
            SharedOp::Stale(who, which) => self.stale(who, which),
            SharedOp::Tend(who) => assert_eq!(self.call(who, [TEND; 5])[1], 0, "no member is dead"),
            SharedOp::Replace => {
                // The old thread's arena is abandoned until the new thread takes it over, or a
                // thread without space takes its slabs.
                let new = CommandedThread::new(self.scope, self.heap);
                std::mem::replace(&mut self.thread, new).end();
            }
            SharedOp::Kill => self.kill(),
        }
    }
}

fn run(slabs: usize, ample: bool, steps: Vec<SharedOp>) {
    let heap = Heap::create(slabs * SLAB).expect("there is memory");
    std::thread::scope(|scope| {
        // SAFETY: the scope outlives this borrow: `all` ends within the scope.
        let scope: &std::thread::Scope<'_, '_> = unsafe { &*std::ptr::from_ref(scope).cast() };
        let mut all = ModelHeap {
            scope,
            heap: &heap,
            thread: CommandedThread::new(scope, &heap),
            other: Other::new(&heap),
            reference: ReferenceHeap::default(),
            held: BTreeMap::new(),
            sent: Vec::new(),
            old: Vec::new(),
            earlier: None,
            next: 0,
        };
        for step in steps {
            all.take(step, ample);
            all.check();
        }
        while !all.sent.is_empty() {
            all.land(ACCEPT, 0);
        }
        while !all.held.is_empty() {
            all.free(0, 0);
        }
        all.check();
        for who in 0..3 {
            all.call(who, [TEND; 5]);
        }
        // The arenas of ended threads have returned their slabs.
        let report = all.heap.check().expect("not forked");
        assert_eq!((report.in_use(), report.committed()), (0, 0), "{report}");
    });
}

proptest! {
    // A case starts threads and processes. `PROPTEST_CASES` sets four times the number of cases.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn ample_heap_allocates_if_first_fit_heap_does(
        steps in prop::collection::vec(step(), 1..STEPS),
    ) {
        // Each step takes at most two slabs, so two adjacent slabs are always left.
        run(4 * STEPS + 16, true, steps);
    }

    #[test]
    fn small_heap_bytes_have_one_holder(steps in prop::collection::vec(step(), 1..STEPS)) {
        run(7, false, steps);
    }
}
