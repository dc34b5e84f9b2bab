//! An index in shared memory that one process writes and three processes read, while all of them
//! are killed repeatedly.
//!
//! An entry is a published block: a key, a value, and a checksum of both, with which a reader
//! detects an entry that mixes two writes. The table has one handle per key. To change an entry,
//! the writer publishes a new block, stores its handle, and withdraws the old block: a process that
//! reads the old entry receives the error that its handle is stale, and tries again. The next
//! writer takes over the role with everything that was published: it links the newest entry of each
//! key, since the last writer may have died before doing so, and drops the others.
//!
//! `cargo run -p tontine --example index [KILLS]`

#![allow(unsafe_code, reason = "forks processes and kills them")]

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use tontine::heap::shared::{Handle, Heap, Published};
use tontine::heap::{HeapError, Result};

/// Number of keys. Each key is a number below this one.
const KEYS: usize = 1_000;
/// The writer's role: the next writer that takes it receives the blocks that the last writer
/// published.
const WRITER: NonZeroU32 = NonZeroU32::new(1).unwrap();
/// Word of the table: number of changes so far.
const CHANGES: usize = 0;
/// First word of the table with a handle: two words per key, offset and generation.
const FIRST: usize = 1;
/// Words of an entry.
const KEY: usize = 0;
const VALUE: usize = 1;
const BOTH: usize = 2;

/// Returns the value of a key, or `None` if it has no entry yet.
fn look_up(heap: &Heap, key: usize) -> Result<Option<u64>> {
    loop {
        let Some(table) = heap.root()? else { return Ok(None) };
        match entry(heap, table, key) {
            // The entry or the table was changed after the handle had been read.
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
    // The two words of a handle may come from two entries, so the key in the block is compared.
    if word(KEY) != key as u64 {
        return Err(HeapError::InvalidHandle { offset, reason: "it belongs to another key" });
    }
    assert_eq!(word(BOTH), both(word(KEY), word(VALUE)), "a torn entry");
    Ok(Some(word(VALUE)))
}

/// Returns the checksum of a key and its value.
fn both(key: u64, value: u64) -> u64 {
    (key << 48 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Takes over the entries of the last writer, then changes entries indefinitely.
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
        // If the writer is killed between these two steps, the key has no entry until the next
        // writer starts.
        table.store(FIRST + 2 * key + 1, entry.handle().generation);
        table.store(FIRST + 2 * key, entry.handle().offset);
    };
    // The newest entry of each key, whether or not it was linked.
    let mut entries: Vec<Option<Published<'_>>> = (0..KEYS).map(|_| None).collect();
    left.sort_by_key(|entry| entry.load(VALUE));
    for entry in left {
        let [key, value, found] = [KEY, VALUE, BOTH].map(|at| entry.load(at));
        // A table whose writer died before `set_root` is all zero.
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

/// Removes and returns the block with this handle.
fn take<'heap>(blocks: &mut Vec<Published<'heap>>, handle: Handle) -> Option<Published<'heap>> {
    let at = blocks.iter().position(|block| block.handle() == handle)?;
    Some(blocks.swap_remove(at))
}

/// Looks up entries indefinitely.
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
    // SAFETY: this program has one thread; the child exits through `_exit`, and joins the heap
    // through the descriptor that it inherited.
    unsafe {
        match libc::fork() {
            -1 => Err(std::io::Error::last_os_error()),
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let work = |heap: Heap| if is_writer { write(&heap) } else { read(&heap) };
                let ended = std::panic::catch_unwind(|| heap.rejoin().and_then(work));
                eprintln!("the process ended: {ended:?}");
                libc::_exit(1)
            }
            pid => Ok(Process(pid)),
        }
    }
}

/// A child process that has not been waited for.
struct Process(libc::pid_t);

impl Process {
    /// Kills the process. Returns an error if it had ended before, for example because of a torn
    /// entry.
    fn kill(self) -> std::io::Result<()> {
        let mut status = 0;
        // SAFETY: the process is a child of this one and was not waited for; `status` is writable.
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

/// Kills one of the four processes repeatedly, and replaces it each time.
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
        return Err("a block leaked, or no entry was changed".into());
    }
    Ok(())
}
