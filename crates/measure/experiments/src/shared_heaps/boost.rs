//! Boost.Interprocess's `managed_shared_memory`: [`Boost`].
//!
//! The heap's code is C++, which `tontine-mechanisms` compiles into a library and loads.

#![allow(unsafe_code, reason = "calls the C functions of a library")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use tontine_bench::os::shared::first_free_name;
use tontine_mechanisms::boost::MANAGED_SHARED_MEMORY;

use super::heaps::{Bare, MeasuredHeap};
use super::table::{BlockAddress, RingEntry};
use crate::prelude::*;

/// Size of the heap in bytes: less than the default size of a container's `/dev/shm`.
const BYTES: usize = 48 << 20;

type Create = unsafe extern "C" fn(*const c_char, usize) -> *mut c_void;
type Allocate = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type FreeFn = unsafe extern "C" fn(*mut c_void, *mut c_void);
type ToHandle = unsafe extern "C" fn(*mut c_void, *mut c_void) -> u64;
type ToAddress = unsafe extern "C" fn(*mut c_void, u64) -> *mut c_void;

#[derive(Debug, Clone, Copy)]
struct BoostFunctions {
    create: Create,
    allocate: Allocate,
    free: FreeFn,
    handle: ToHandle,
    address: ToAddress,
}

/// A heap with its single lock inside. Processes forked later share the heap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Boost {
    functions: BoostFunctions,
    heap: NonNull<c_void>,
}

// SAFETY: the heap is designed for several threads and processes at once.
unsafe impl Sync for Boost {}

impl Boost {
    pub(super) fn new() -> Result<Self> {
        let functions = load()?;
        let create = |name: &CStr| {
            // SAFETY: the name ends with a zero byte and lives for the call.
            let heap = unsafe { (functions.create)(name.as_ptr(), BYTES) };
            NonNull::new(heap).ok_or_else(|| {
                let why = "managed_shared_memory: refused; is there free space in /dev/shm?";
                std::io::Error::new(std::io::ErrorKind::AlreadyExists, why)
            })
        };
        let (_, heap) = first_free_name(create)
            .map_err(|error| MeasureError::skip(format!("managed_shared_memory: {error}")))?;
        Ok(Self { functions, heap })
    }
}

fn load() -> Result<BoostFunctions> {
    let library = MANAGED_SHARED_MEMORY.load("managed_shared_memory")?;
    let symbol = |name: &CStr| library.symbol(name).map(NonNull::as_ptr);
    let [create, allocate, free] = [
        symbol(c"tontine_boost_create")?,
        symbol(c"tontine_boost_allocate")?,
        symbol(c"tontine_boost_free")?,
    ];
    let [handle, address] = [symbol(c"tontine_boost_handle")?, symbol(c"tontine_boost_address")?];
    // SAFETY: each pointer is the function of that name in the C++ source, and has this type.
    unsafe {
        Ok(BoostFunctions {
            create: std::mem::transmute::<*mut c_void, Create>(create),
            allocate: std::mem::transmute::<*mut c_void, Allocate>(allocate),
            free: std::mem::transmute::<*mut c_void, FreeFn>(free),
            handle: std::mem::transmute::<*mut c_void, ToHandle>(handle),
            address: std::mem::transmute::<*mut c_void, ToAddress>(address),
        })
    }
}

// SAFETY: the heap's blocks are aligned to 16 and have the requested length; each block is consumed
// by `free` or `give`.
unsafe impl MeasuredHeap for Boost {
    type Block<'h> = Bare;

    fn join(&self) -> Result<Self> {
        Ok(*self)
    }

    #[inline(always)]
    fn allocate(&self, size: usize) -> Result<Bare> {
        // SAFETY: the heap lives as long as this process.
        Bare::new(unsafe { (self.functions.allocate)(self.heap.as_ptr(), size) }, size)
    }

    #[inline(always)]
    fn at(&self, block: &mut Bare) -> NonNull<u64> {
        block.at()
    }

    #[inline(always)]
    fn free(&self, block: Bare) -> Result<()> {
        // SAFETY: the block comes from this heap; a `Bare` is a block's only handle.
        unsafe { (self.functions.free)(self.heap.as_ptr(), block.at().as_ptr().cast()) };
        Ok(())
    }

    #[inline(always)]
    fn give(&self, block: Bare, _: BlockAddress) -> Result<Option<RingEntry>> {
        // SAFETY: the block comes from this heap.
        let handle =
            unsafe { (self.functions.handle)(self.heap.as_ptr(), block.at().as_ptr().cast()) };
        Ok(Some([handle, 0, 0]))
    }

    #[inline(always)]
    fn take(&self, entry: RingEntry) -> Result<Option<Bare>> {
        // SAFETY: another process of this heap created the handle from its block.
        let at = unsafe { (self.functions.address)(self.heap.as_ptr(), entry[0]) };
        Bare::new(at, 0).map(Some)
    }
}
