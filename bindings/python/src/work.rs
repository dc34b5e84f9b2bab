//! The work of an executor's processes: [`Board`], on which a worker notes which task it runs, the
//! loop that runs tasks ([`run_tasks`]), and the executor's side of their results
//! ([`take_results`]).
//!
//! Each task has a number at its worker: 1, 2, 3. The worker sends one record per number, in their
//! order, before it begins the next one. A dead worker has therefore run the tasks whose records
//! arrived, and may have run the next one if the board says that it began it.

#![allow(unsafe_code, reason = "a page that two processes map")]

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyTuple};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open,
    set_parent_process_death_signal,
};

use crate::bytes::MessageBytes;
use crate::mailbox::PyMailbox;
use crate::sender::PySender;

/// Number of bits of a withdrawal that count its tasks. The others are the first number.
const COUNT_BITS: u32 = 24;

/// Number of bytes of a payload that needs no memory of its own.
const SHORT: usize = 112;

/// Bytes of a record before its payload: the worker, the kind, and the task's number.
const HEADER: usize = 16;

/// The content of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    None,
    False,
    True,
    Int,
    Float,
    /// The task returned an object, which is pickled.
    Pickled,
    /// The task raised an exception, which is pickled.
    Raised,
    /// The executor had withdrawn the task, and it did not run.
    Skipped,
    /// The task did not run, because its arguments could not be read together with others.
    Split,
    /// The worker is ready. No task has its number, 0.
    Ready,
}

/// A worker's part of a board. Each half has one writer, and a cache line of its own.
#[repr(C, align(256))]
struct Slot {
    /// The task that the worker began last. The worker writes it.
    begun: AtomicU64,
    /// The first task of the packet that the worker reads, or read last. The worker writes it.
    reading: AtomicU64,
    _apart: [u64; 14],
    /// The tasks that the executor has withdrawn: the first number and, in the lowest bits, how
    /// many. The executor writes it.
    withdrawn: AtomicU64,
}

/// Memory that an executor and its workers share: which task each worker runs, and which tasks it
/// must not begin.
#[pyclass(module = "tontine", frozen)]
pub(crate) struct Board {
    slots: *const Slot,
    count: usize,
    file: OwnedFd,
}

// SAFETY: the slots contain only atomics.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    fn map(file: OwnedFd, count: usize) -> std::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let slots = unsafe {
            let length = count * size_of::<Slot>();
            mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, &file, 0)?
        };
        Ok(Self { slots: slots.cast(), count, file })
    }

    fn slot(&self, number: usize) -> PyResult<&Slot> {
        if number >= self.count {
            let text = format!("expected a slot below {}, found {number}", self.count);
            return Err(PyValueError::new_err(text));
        }
        // SAFETY: the mapping has this many slots, and its file never becomes shorter.
        Ok(unsafe { &*self.slots.add(number) })
    }
}

impl Slot {
    /// Notes that the worker begins a task, and returns `false` if the executor has withdrawn it.
    fn begin(&self, task: u64) -> bool {
        self.begun.store(task, Ordering::Relaxed);
        // With the fence in `Board::withdraw`: either the worker sees the withdrawal, or the
        // executor sees that the task has begun.
        fence(Ordering::SeqCst);
        let withdrawn = self.withdrawn.load(Ordering::Relaxed);
        let (first, count) = (withdrawn >> COUNT_BITS, withdrawn & ((1 << COUNT_BITS) - 1));
        task.wrapping_sub(first) >= count
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: nothing else refers to the mapping.
        let _ = unsafe { munmap(self.slots as *mut c_void, self.count * size_of::<Slot>()) };
    }
}

#[pymethods]
impl Board {
    /// Makes a board for this number of workers.
    #[new]
    fn new(slots: usize) -> PyResult<Self> {
        let file = memfd_create("tontine-board", MemfdFlags::CLOEXEC).map_err(failed)?;
        ftruncate(&file, (slots * size_of::<Slot>()) as u64).map_err(failed)?;
        Ok(Self::map(file, slots)?)
    }

    /// Opens a board that another process made, and takes its descriptor over.
    #[staticmethod]
    fn from_fd(descriptor: i32) -> PyResult<Self> {
        // SAFETY: the caller received the descriptor, and gives it away.
        let file = unsafe { std::os::fd::FromRawFd::from_raw_fd(descriptor) };
        let file: OwnedFd = file;
        let length = fstat(&file).map_err(failed)?.st_size;
        Ok(Self::map(file, length as usize / size_of::<Slot>())?)
    }

    /// Returns the descriptor.
    fn fileno(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Prepares a slot for a new worker. The former worker has ended.
    fn reset(&self, slot: usize) -> PyResult<()> {
        let slot = self.slot(slot)?;
        slot.begun.store(0, Ordering::Relaxed);
        slot.reading.store(0, Ordering::Relaxed);
        slot.withdrawn.store(0, Ordering::SeqCst);
        Ok(())
    }

    /// Returns the number of the task that the worker began last; 0 before the first one.
    fn begun(&self, slot: usize) -> PyResult<u64> {
        Ok(self.slot(slot)?.begun.load(Ordering::Acquire))
    }

    /// Notes that the worker unpickles a packet, which may end the process.
    fn read(&self, slot: usize, first: u64) -> PyResult<()> {
        self.slot(slot)?.reading.store(first, Ordering::Release);
        Ok(())
    }

    /// Returns the first task of the packet that the worker read last; 0 before the first one.
    fn reading(&self, slot: usize) -> PyResult<u64> {
        Ok(self.slot(slot)?.reading.load(Ordering::Acquire))
    }

    /// Withdraws tasks from a worker, and returns the task that it began last.
    ///
    /// The worker does not run the tasks behind that one. If that one is withdrawn too, its record
    /// says whether it ran. Withdraw again only after the worker has passed all these tasks.
    fn withdraw(&self, slot: usize, first: u64, count: u64) -> PyResult<u64> {
        let slot = self.slot(slot)?;
        slot.withdrawn.store(first << COUNT_BITS | count, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Ok(slot.begun.load(Ordering::Relaxed))
    }
}

/// Sends a record of a worker.
fn send(
    py: Python<'_>,
    sender: &PySender,
    worker: u32,
    number: u64,
    kind: Kind,
    payload: &[u8],
) -> PyResult<()> {
    let mut short = [0; HEADER + SHORT];
    let length = HEADER + payload.len();
    let mut long;
    let record: &mut [u8] = if length <= short.len() {
        &mut short[..length]
    } else {
        long = vec![0; length];
        &mut long
    };
    record[..4].copy_from_slice(&worker.to_le_bytes());
    record[4] = kind as u8;
    record[8..HEADER].copy_from_slice(&number.to_le_bytes());
    record[HEADER..].copy_from_slice(payload);
    sender.send_bytes(py, &MessageBytes::Immutable(record))
}

/// Tells the executor that a worker is ready.
#[pyfunction]
pub(crate) fn send_ready(py: Python<'_>, sender: &PySender, worker: u32) -> PyResult<()> {
    send(py, sender, worker, 0, Kind::Ready, &[])
}

/// Tells the executor that the arguments of these tasks could not be read together.
#[pyfunction]
pub(crate) fn send_split(
    py: Python<'_>,
    sender: &PySender,
    worker: u32,
    first: u64,
    count: u64,
) -> PyResult<()> {
    (first..first + count).try_for_each(|number| send(py, sender, worker, number, Kind::Split, &[]))
}

/// Sends an exception, which is pickled, as the result of a task.
#[pyfunction]
pub(crate) fn send_raised(
    py: Python<'_>,
    sender: &PySender,
    worker: u32,
    number: u64,
    pickled: &[u8],
) -> PyResult<()> {
    send(py, sender, worker, number, Kind::Raised, pickled)
}

/// Calls a function with the arguments of each task, and sends each result.
///
/// `form` is how a task's arguments are passed: "one" argument, "star" for a sequence of them, or
/// "call" for a pair of a sequence and a dictionary. `pickle` turns a result into bytes, and
/// `pickle_error` an exception.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "a worker's whole state")]
pub(crate) fn run_tasks<'py>(
    py: Python<'py>,
    board: &Board,
    slot: usize,
    sender: &PySender,
    worker: u32,
    first: u64,
    function: &Bound<'py, PyAny>,
    form: &str,
    arguments: &Bound<'py, PyList>,
    pickle: &Bound<'py, PyAny>,
    pickle_error: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let slot = board.slot(slot)?;
    for (number, argument) in (first..).zip(arguments.iter()) {
        if !slot.begin(number) {
            send(py, sender, worker, number, Kind::Skipped, &[])?;
            continue;
        }
        let sent = call(function, form, argument).and_then(|value| {
            let pickled;
            let bytes;
            let (kind, payload): (Kind, &[u8]) = if value.is_none() {
                (Kind::None, &[])
            } else if let Ok(value) = value.cast_exact::<PyBool>() {
                (if value.is_true() { Kind::True } else { Kind::False }, &[])
            } else if let Some(value) = small_int(&value) {
                bytes = value.to_le_bytes();
                (Kind::Int, &bytes)
            } else if let Ok(value) = value.cast_exact::<PyFloat>() {
                bytes = value.value().to_le_bytes();
                (Kind::Float, &bytes)
            } else {
                pickled = pickle.call1((&value,))?.cast_into::<PyBytes>()?;
                (Kind::Pickled, pickled.as_bytes())
            };
            // The value is dropped before the next task begins, after it is sent.
            send(py, sender, worker, number, kind, payload)
        });
        if let Err(error) = sent {
            let pickled = pickle_error.call1((error.into_value(py),))?.cast_into::<PyBytes>()?;
            send(py, sender, worker, number, Kind::Raised, pickled.as_bytes())?;
        }
    }
    Ok(())
}

fn call<'py>(
    function: &Bound<'py, PyAny>,
    form: &str,
    argument: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    match form {
        "one" => function.call1((argument,)),
        "star" => function.call1(sequence(&argument)?),
        _ => {
            let (arguments, keywords): (Bound<'py, PyAny>, Bound<'py, PyDict>) =
                argument.extract()?;
            function.call(sequence(&arguments)?, Some(&keywords))
        }
    }
}

/// Returns the items of an iterable as a tuple.
fn sequence<'py>(arguments: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    match arguments.cast::<PyTuple>() {
        Ok(tuple) => Ok(tuple.clone()),
        Err(_) => {
            let items: Vec<_> = arguments.try_iter()?.collect::<PyResult<_>>()?;
            PyTuple::new(arguments.py(), items)
        }
    }
}

fn small_int(value: &Bound<'_, PyAny>) -> Option<i64> {
    value.cast_exact::<PyInt>().ok()?.extract().ok()
}

/// Records of one worker with successive numbers.
struct Records {
    worker: u32,
    first: u64,
    values: Vec<Py<PyAny>>,
    /// Positions among `values` that Python completes, with the kind and the payload.
    others: Vec<RecordPayload>,
}

/// A record that is not a plain value: its position, kind and payload.
type RecordPayload = (usize, u8, Py<PyBytes>);

/// Records for Python: the worker, the first number, the values, and what completes them.
type RecordGroup<'py> = (u32, u64, Bound<'py, PyList>, Vec<RecordPayload>);

/// Returns the records that have arrived.
#[pyfunction]
pub(crate) fn take_results<'py>(
    py: Python<'py>,
    mailbox: &PyMailbox,
    max: usize,
) -> PyResult<Vec<RecordGroup<'py>>> {
    let mut all: Vec<Records> = Vec::new();
    // No Python code runs in here: only objects without references to others are made.
    mailbox.take_each(py, max, |record| {
        let (header, payload) = record.split_at_checked(HEADER)?;
        let worker = u32::from_le_bytes(header[..4].try_into().ok()?);
        let number = u64::from_le_bytes(header[8..].try_into().ok()?);
        let follows =
            |one: &Records| one.worker == worker && one.first + one.values.len() as u64 == number;
        // Most records follow the last one of their worker.
        let at = all.iter().rposition(follows).unwrap_or_else(|| {
            all.push(Records { worker, first: number, values: Vec::new(), others: Vec::new() });
            all.len() - 1
        });
        let records = &mut all[at];
        let value = match header[4] {
            kind if kind == Kind::False as u8 => PyBool::new(py, false).to_owned().into_any(),
            kind if kind == Kind::True as u8 => PyBool::new(py, true).to_owned().into_any(),
            kind if kind == Kind::Int as u8 => {
                i64::from_le_bytes(payload.try_into().ok()?).into_pyobject(py).ok()?.into_any()
            }
            kind if kind == Kind::Float as u8 => {
                PyFloat::new(py, f64::from_le_bytes(payload.try_into().ok()?)).into_any()
            }
            kind if kind == Kind::None as u8 => py.None().into_bound(py),
            kind => {
                let payload = PyBytes::new(py, payload).unbind();
                records.others.push((records.values.len(), kind, payload));
                py.None().into_bound(py)
            }
        };
        records.values.push(value.unbind());
        Some(())
    })?;
    let lists = all.into_iter().map(|records| {
        let values = PyList::new(py, records.values)?;
        Ok((records.worker, records.first, values, records.others))
    });
    lists.collect()
}

/// Lets the kernel kill this process when the executor's process, `pid`, dies.
///
/// Raises:
///     OSError: That process has ended.
#[pyfunction]
pub(crate) fn die_with(pid: i32) -> PyResult<()> {
    let gone = || PyOSError::new_err(format!("the executor's process {pid} has ended"));
    let parent = Pid::from_raw(pid).ok_or_else(gone)?;
    // The kernel sends the signal when the thread that started this process ends.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    if getppid() == Some(parent) {
        return Ok(());
    }
    // A fork server started this process: a thread waits for the end of the executor's process.
    set_parent_process_death_signal(None).map_err(failed)?;
    let process = pidfd_open(parent, PidfdFlags::empty()).map_err(|_| gone())?;
    std::thread::Builder::new()
        .name("tontine-parent".into())
        .spawn(move || {
            while !has_ended(process.as_fd()) {}
            let _ = kill_process(getpid(), Signal::KILL);
        })
        .map_err(|error| PyOSError::new_err(error.to_string()))?;
    Ok(())
}

/// Waits until a process ends; `false` if a signal interrupts the wait.
fn has_ended(process: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::from_borrowed_fd(process, PollFlags::IN)], None).is_ok_and(|ready| ready > 0)
}

fn failed(error: rustix::io::Errno) -> PyErr {
    std::io::Error::from(error).into()
}
