//! An index in shared memory that one process writes and three read, while any of them is killed
//! again and again.
//!
//! An entry is a published block of its own: a key, a value, and a word that both give, so that a
//! reader would notice if they were not of one piece. The table leads to them, a handle a key. To
//! change an entry is to publish a new block, to store its handle, and to withdraw the old one: a
//! reader that was at it is told that its handle is stale, and looks again. The writer's role
//! passes to the next writer, with all that was published: it links the newest entry of each key,
//! which the one before may have died over, and lets the others go.
//!
//! `cargo run -p tontine --example index [KILLS]`

#![allow(unsafe_code, reason = "forks, and kills what it forked")]

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use tontine::heap::shared::{Handle, Heap, Published};
use tontine::heap::{HeapError, Result};

/// Keys are numbers below this.
const KEYS: usize = 1_000;
/// A writer's role: what it has published waits for the next one.
const WRITER: NonZeroU32 = NonZeroU32::new(1).unwrap();
/// The table: how many entries were changed so far, then two words a key, offset and generation.
const CHANGES: usize = 0;
const FIRST: usize = 1;
/// Words of an entry.
const KEY: usize = 0;
const VALUE: usize = 1;
const BOTH: usize = 2;

/// What a reader finds under a key; none where nothing is there yet.
fn look_up(heap: &Heap, key: usize) -> Result<Option<u64>> {
    loop {
        let Some(table) = heap.root()? else { return Ok(None) };
        match entry(heap, table, key) {
            // It was changed, or the table was, after we had read its handle.
            Err(HeapError::Stale { .. } | HeapError::InvalidHandle { .. }) => {
                std::hint::spin_loop()
            }
            answer => return answer,
        }
    }
}

fn entry(heap: &Heap, table: Handle, key: usize) -> Result<Option<u64>> {
    let offset = heap.load(table, FIRST + 2 * key)?;
    let generation = heap.load(table, FIRST + 2 * key + 1)?;
    if offset == 0 {
        return Ok(None);
    }
    let mut bytes = [0; 24];
    heap.read(Handle { offset, generation }, &mut bytes)?;
    let word = |at: usize| u64::from_ne_bytes(bytes[8 * at..][..8].try_into().expect("eight"));
    // Of the two words of a handle one may be of the entry before: the block says whose it is.
    if word(KEY) != key as u64 {
        return Err(HeapError::InvalidHandle { offset, reason: "it is another key's" });
    }
    assert_eq!(word(BOTH), both(word(KEY), word(VALUE)), "an entry in pieces");
    Ok(Some(word(VALUE)))
}

fn both(key: u64, value: u64) -> u64 {
    (key << 48 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Takes over what the writers before have left, and changes entries for ever.
fn write(heap: &Heap) -> Result<()> {
    let mut left = heap.take_over_role(WRITER)?;
    let table = match heap.root()?.and_then(|root| take(&mut left, root)) {
        Some(table) => table,
        None => {
            let block = heap.alloc_zeroed(8 * (FIRST + 2 * KEYS))?;
            let table = block.publish().map_err(|(error, _)| error)?;
            heap.set_root(Some(table.handle()))?;
            table
        }
    };
    let link = |key: usize, entry: &Published<'_>| {
        // Killed between these two, the key leads nowhere until the next writer comes.
        table.store(FIRST + 2 * key + 1, entry.handle().generation);
        table.store(FIRST + 2 * key, entry.handle().offset);
    };
    // Of each key the newest entry, whether it was linked or not.
    let mut entries: Vec<Option<Published<'_>>> = (0..KEYS).map(|_| None).collect();
    left.sort_by_key(|entry| entry.load(VALUE));
    for entry in left {
        let [key, value, found] = [KEY, VALUE, BOTH].map(|at| entry.load(at));
        // A table that nobody came to name is zeroes.
        if value > 0 && found == both(key, value) && key < KEYS as u64 {
            link(key as usize, &entry);
            entries[key as usize] = Some(entry);
        }
    }
    loop {
        let change = table.load(CHANGES) + 1;
        let key = change as usize * 7 % KEYS;
        let mut block = heap.alloc(24)?;
        let words = [key as u64, change, both(key as u64, change)];
        block.copy_from_slice(&words.map(u64::to_ne_bytes).concat());
        let entry = block.publish().map_err(|(error, _)| error)?;
        link(key, &entry);
        table.store(CHANGES, change);
        entries[key] = Some(entry);
    }
}

/// The block of this handle, if it is among these.
fn take<'heap>(blocks: &mut Vec<Published<'heap>>, handle: Handle) -> Option<Published<'heap>> {
    let at = blocks.iter().position(|block| block.handle() == handle)?;
    Some(blocks.swap_remove(at))
}

/// Looks entries up for ever.
fn read(heap: &Heap) -> Result<()> {
    for round in 0_usize.. {
        look_up(heap, round * 13 % KEYS)?;
        if round.is_multiple_of(1 << 14) {
            heap.recover_and_trim()?;
        }
    }
    Ok(())
}

/// Forks a process that writes or reads until it is killed.
fn start(heap: &Heap, is_writer: bool) -> std::io::Result<Process> {
    // SAFETY: this program has one thread; the child leaves by `_exit`, and joins the heap by the
    // descriptor that it has inherited.
    unsafe {
        match libc::fork() {
            -1 => Err(std::io::Error::last_os_error()),
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let work = |heap: Heap| if is_writer { write(&heap) } else { read(&heap) };
                let ended = std::panic::catch_unwind(|| heap.rejoin().and_then(work));
                eprintln!("it ended: {ended:?}");
                libc::_exit(1)
            }
            pid => Ok(Process(pid)),
        }
    }
}

/// A child that has not been waited for.
struct Process(libc::pid_t);

impl Process {
    /// Kills it; an error where it has ended by itself: that would be an entry in pieces.
    fn kill(self) -> std::io::Result<()> {
        let mut status = 0;
        // SAFETY: our own child, which nobody else waits for; `status` is writable.
        let pid = unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, &raw mut status, 0)
        };
        if pid != self.0 || !libc::WIFSIGNALED(status) {
            return Err(std::io::Error::other("a process ended before it was killed"));
        }
        Ok(())
    }
}

/// Kills one of the four so often, and puts another one in its place.
pub(crate) fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let kills: u32 = std::env::args().nth(1).and_then(|kills| kills.parse().ok()).unwrap_or(100);
    let heap = Heap::create(64 << 20)?;
    let is_writer = |at: usize| at == 0;
    let members: std::io::Result<Vec<_>> = (0..4).map(|at| start(&heap, is_writer(at))).collect();
    let mut members = members?;
    let begin = Instant::now();
    for kill in 0..kills as usize {
        std::thread::sleep(Duration::from_millis(5 + (kill * 7 % 11) as u64));
        let at = kill % members.len();
        members.swap_remove(at).kill()?;
        heap.recover_and_trim()?;
        members.push(start(&heap, is_writer(at))?);
        let last = members.len() - 1;
        members.swap(at, last);
    }
    for member in members {
        member.kill()?;
    }
    heap.recover_and_trim()?;
    let changes = heap.root()?.map_or(Ok(0), |table| heap.load(table, CHANGES))?;
    drop(heap.take_over_role(WRITER)?);
    heap.recover_and_trim()?;
    let report = heap.check()?;
    print!("{report}");
    println!(
        "{kills} kills in {:.1?}, {changes} changes; {} bytes in use, {} faults",
        begin.elapsed(),
        report.in_use(),
        report.faults.len()
    );
    if report.in_use() > 0 || !report.faults.is_empty() || changes == 0 {
        return Err("something leaked, or nothing was done".into());
    }
    Ok(())
}
