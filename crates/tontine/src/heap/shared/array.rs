//! A growable array of plain data in a block: [`Array`].

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;

use super::{Block, Heap};
use crate::heap::Result;

/// A growable array of plain data in a block of a shared heap, like a `Vec`.
///
/// `T` must be plain data ([`Pod`]), because other processes may have written its bytes. Dropping
/// the array frees its block.
///
/// # Examples
/// ```
/// use tontine::heap::shared::{Array, Heap};
///
/// # fn main() -> tontine::heap::Result<()> {
/// let heap = Heap::create(1 << 20)?;
/// let mut primes = Array::<u32>::new(&heap)?;
/// for prime in [2, 3, 5, 7] {
///     primes.push(prime)?;
/// }
/// let block = primes.into_block(); // 16 bytes, to hand over or to publish
/// let primes = Array::<u32>::from_block(&heap, block);
/// assert_eq!(primes[..], [2, 3, 5, 7]);
/// # Ok(())
/// # }
/// ```
pub struct Array<'heap, T: Pod> {
    heap: &'heap Heap,
    /// The block that contains the values. Its length is their total length.
    block: Block<'heap>,
    values: PhantomData<T>,
}

impl<T: Pod + fmt::Debug> fmt::Debug for Array<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

impl<'heap, T: Pod> Array<'heap, T> {
    /// Compiles only if a block is sufficiently aligned for `T`.
    const FITS: () = assert!(align_of::<T>() <= 64 && size_of::<T>() > 0);

    /// Returns an empty array in a block of the smallest size.
    ///
    /// # Errors
    /// Returns the errors of [`Heap::alloc`], such as [`HeapError::Full`] if no space is left.
    ///
    /// [`HeapError::Full`]: crate::heap::HeapError::Full
    pub fn new(heap: &'heap Heap) -> Result<Self> {
        Self::with_capacity(heap, 0)
    }

    /// Returns an empty array with space for at least `values` values.
    ///
    /// # Errors
    /// Returns the errors of [`Heap::alloc`], such as [`HeapError::Full`] if no space is left.
    ///
    /// # Examples
    /// ```
    /// use tontine::heap::shared::{Array, Heap};
    ///
    /// let heap = Heap::create(1 << 20)?;
    /// let array = Array::<u64>::with_capacity(&heap, 100)?;
    /// assert!(array.is_empty() && array.capacity() >= 100);
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    ///
    /// [`HeapError::Full`]: crate::heap::HeapError::Full
    pub fn with_capacity(heap: &'heap Heap, values: usize) -> Result<Self> {
        let () = Self::FITS;
        let mut block = heap.alloc(values.saturating_mul(size_of::<T>()))?;
        block.resize(0);
        Ok(Self { heap, block, values: PhantomData })
    }

    /// Returns an array of the values in a block of this heap, such as a block that another process
    /// has handed over. Trailing bytes that are not a whole value are ignored.
    pub fn from_block(heap: &'heap Heap, mut block: Block<'heap>) -> Self {
        let () = Self::FITS;
        block.resize(block.len() / size_of::<T>() * size_of::<T>());
        Self { heap, block, values: PhantomData }
    }

    /// Returns the array's block, which ends after the last value, to be handed over or published.
    pub fn into_block(self) -> Block<'heap> {
        self.block
    }

    /// Returns the number of values that the block can hold before they move to another block.
    pub fn capacity(&self) -> usize {
        self.block.capacity() / size_of::<T>()
    }

    /// Appends a value. If the block has no space for it, all values move to a block of twice the
    /// size.
    ///
    /// # Errors
    /// Returns the errors of [`Heap::alloc`], such as [`HeapError::Full`] if no space is left. The
    /// array is then unchanged.
    ///
    /// [`HeapError::Full`]: crate::heap::HeapError::Full
    pub fn push(&mut self, value: T) -> Result<()> {
        self.extend_from_slice(&[value])
    }

    /// Appends all values of a slice.
    ///
    /// # Errors
    /// Returns the errors of [`Array::push`]. The array is then unchanged.
    ///
    /// # Examples
    /// ```
    /// use tontine::heap::shared::{Array, Heap};
    ///
    /// let heap = Heap::create(1 << 20)?;
    /// let mut array = Array::<u16>::new(&heap)?;
    /// array.extend_from_slice(&[1, 2, 3])?;
    /// assert_eq!(array.pop(), Some(3));
    /// assert_eq!(array[..], [1, 2]);
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    pub fn extend_from_slice(&mut self, values: &[T]) -> Result<()> {
        let bytes = bytemuck::cast_slice(values);
        let len = self.block.len();
        if self.block.capacity() - len < bytes.len() {
            let mut larger = self.heap.alloc((len + bytes.len()).max(2 * len))?;
            larger[..len].copy_from_slice(&self.block);
            larger.resize(len);
            self.block = larger;
        }
        self.block.resize(len + bytes.len());
        self.block[len..].copy_from_slice(bytes);
        Ok(())
    }

    /// Removes the last value and returns it, or returns `None` if the array is empty.
    pub fn pop(&mut self) -> Option<T> {
        let last = *self.last()?;
        self.truncate(self.len() - 1);
        Some(last)
    }

    /// Keeps the first `values` values and removes the rest. No memory is freed.
    pub fn truncate(&mut self, values: usize) {
        if values < self.len() {
            self.block.resize(values * size_of::<T>());
        }
    }
}

impl<T: Pod> Deref for Array<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // A block begins at a multiple of 64, and this block contains only whole values.
        bytemuck::cast_slice(&self.block)
    }
}

impl<T: Pod> DerefMut for Array<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.block)
    }
}
