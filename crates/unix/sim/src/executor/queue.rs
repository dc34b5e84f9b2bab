//! Queues of fibers, linked through the fibers themselves ([`Linkable`]): [`LocalQueue`],
//! [`WorkerInbox`].
//!
//! A fiber is in at most one queue, and is alive while it is queued: a queue counts no references,
//! allocates no memory and never fails. [`LocalQueue`] belongs to one thread. [`WorkerInbox`]
//! accepts fibers from all threads and from signal handlers. It also records whether its owner
//! sleeps, so that no post is missed.
#![allow(unsafe_code, reason = "links fibers by address")]

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An object that can be in one queue at a time.
pub(super) trait Linkable: Sized + Sync {
    /// Returns the link of the queue.
    fn next(&self) -> &AtomicPtr<Self>;
}

/// A first-in, first-out queue for one thread.
pub(super) struct LocalQueue<T> {
    head: Cell<*mut T>,
    tail: Cell<*mut T>,
}

// SAFETY: the pointers refer to objects that any thread may access; a queue is moved, never shared.
unsafe impl<T: Linkable> Send for LocalQueue<T> {}

impl<T: Linkable> LocalQueue<T> {
    pub(super) const fn new() -> Self {
        Self { head: Cell::new(ptr::null_mut()), tail: Cell::new(ptr::null_mut()) }
    }

    /// Adds a live task that is in no queue.
    pub(super) fn push(&self, task: *const T) {
        let task = task.cast_mut();
        // SAFETY: the caller passes a live task, and the tail is alive because it is queued.
        unsafe {
            (*task).next().store(ptr::null_mut(), Ordering::Relaxed);
            match self.tail.replace(task).as_ref() {
                Some(tail) => tail.next().store(task, Ordering::Relaxed),
                None => self.head.set(task),
            }
        }
    }

    /// Returns `true` if the queue is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.head.get().is_null()
    }

    /// Removes the oldest task.
    pub(super) fn pop(&self) -> Option<*const T> {
        let head = self.head.get();
        // SAFETY: queued tasks are alive.
        let next = unsafe { head.as_ref() }?.next().load(Ordering::Relaxed);
        self.head.set(next);
        if next.is_null() {
            self.tail.set(ptr::null_mut());
        }
        Some(head)
    }
}

/// A queue that all threads post to and one thread drains.
pub(super) struct WorkerInbox<T>(AtomicPtr<T>);

impl<T: Linkable> WorkerInbox<T> {
    /// The value of an empty inbox whose owner sleeps or is about to sleep. No task has this
    /// address.
    const ASLEEP: *mut T = ptr::without_provenance_mut(1);

    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Adds a live task that is in no queue. Returns `true` if the owner sleeps and the caller must
    /// wake it. Async-signal-safe.
    #[must_use]
    pub(super) fn post(&self, task: *const T) -> bool {
        let task = task.cast_mut();
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            let next = if head == Self::ASLEEP { ptr::null_mut() } else { head };
            // SAFETY: the caller passes a live task, which no other thread accesses before it is
            // posted.
            unsafe { &*task }.next().store(next, Ordering::Relaxed);
            // SYNC inbox: pairs with the swap in `WorkerInbox::drain`: the thread that takes the
            // task sees its link and the effects of the waker. SYNC asleep: pairs with
            // `WorkerInbox::fall_asleep`: a thread that finds the mark knows that the owner has
            // announced its sleep, and wakes it.
            let post =
                self.0.compare_exchange_weak(head, task, Ordering::AcqRel, Ordering::Relaxed);
            match post {
                Ok(_) => return head == Self::ASLEEP,
                Err(now) => head = now,
            }
        }
    }

    /// Returns `true` if there are posts to drain.
    pub(super) fn has_posts(&self) -> bool {
        let head = self.0.load(Ordering::Relaxed);
        !head.is_null() && head != Self::ASLEEP
    }

    /// Passes all posts to `each`, in the order of their arrival. Must be called by the owner while
    /// it is awake.
    pub(super) fn drain(&self, mut each: impl FnMut(*const T)) {
        // SYNC inbox: pairs with the exchange in `WorkerInbox::post`.
        let mut newest = self.0.swap(ptr::null_mut(), Ordering::Acquire);
        assert!(newest != Self::ASLEEP, "an inbox is drained by its owner, awake");
        let mut oldest: *mut T = ptr::null_mut();
        // SAFETY: posted tasks are alive; once they are removed only this thread accesses the
        // links.
        while let Some(task) = unsafe { newest.as_ref() } {
            let next = task.next().swap(oldest, Ordering::Relaxed);
            oldest = newest;
            newest = next;
        }
        // SAFETY: as above; the link is read before the task is passed on.
        while let Some(task) = unsafe { oldest.as_ref() } {
            let next = task.next().load(Ordering::Relaxed);
            each(oldest);
            oldest = next;
        }
    }

    /// Marks the owner as asleep. Returns `false` if there are posts.
    #[must_use]
    pub(super) fn fall_asleep(&self) -> bool {
        let awake = ptr::null_mut();
        // SYNC asleep: pairs with `WorkerInbox::post`. The owner has already announced its sleep.
        self.0.compare_exchange(awake, Self::ASLEEP, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Removes the mark, unless a post already did.
    pub(super) fn wake_up(&self) {
        let awake = ptr::null_mut();
        let _ = self.0.compare_exchange(Self::ASLEEP, awake, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::options::Start;
    use super::super::stack::StackPool;
    use super::super::task::{Affinity, SwitchReason, Task, Worker};
    use super::*;

    /// Calls `test` with three fibers that never begin.
    fn with_tasks(test: impl FnOnce([*const Task; 3])) {
        let pool = StackPool::new(16 << 10, 16);
        let home = Worker::acquire(0);
        let mut stacks = Vec::new();
        pool.lend(&mut stacks, 3).expect("memory is available");
        let tasks = [1, 2, 3].map(|id| {
            let place = Affinity { home, processor: 0, pinned: false };
            let stack = stacks.pop().expect("three stacks were lent");
            let body = Box::new(|| {});
            let start = Start { processor: None, context: 0, name: 0, body };
            Arc::as_ptr(&Task::new(id, start, place, stack))
        });
        test(tasks);
        // SAFETY: the tasks have never started, are in no queue, and are buried once.
        pool.give(
            tasks.into_iter().filter_map(|task| unsafe { Task::bury(task, SwitchReason::End) }),
        );
        home.release();
    }

    #[test]
    fn queue_returns_elements_in_order() {
        with_tasks(|[a, b, c]| {
            let queue = LocalQueue::new();
            assert!(queue.pop().is_none());
            queue.push(a);
            queue.push(b);
            assert_eq!(queue.pop(), Some(a));
            queue.push(c);
            assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(b), Some(c), None));
        });
    }

    #[test]
    fn inbox_returns_posts_in_order() {
        with_tasks(|tasks| {
            let inbox = WorkerInbox::new();
            for task in tasks {
                assert!(!inbox.post(task), "the owner is awake");
            }
            let mut seen = Vec::new();
            inbox.drain(|task| seen.push(task));
            assert_eq!(seen, tasks);
            assert!(!inbox.has_posts());
        });
    }

    #[test]
    fn inbox_with_posts_refuses_sleep() {
        with_tasks(|[a, ..]| {
            let inbox = WorkerInbox::new();
            assert!(!inbox.post(a));
            assert!(!inbox.fall_asleep());
            let mut seen = Vec::new();
            inbox.drain(|task| seen.push(task));
            assert_eq!(seen, [a]);
        });
    }

    #[test]
    fn only_first_post_wakes_sleeping_owner() {
        with_tasks(|[a, b, _]| {
            let inbox = WorkerInbox::new();
            assert!(inbox.fall_asleep());
            assert!(!inbox.has_posts());
            assert!(inbox.post(a));
            assert!(!inbox.post(b));
            inbox.wake_up();
            let mut seen = Vec::new();
            inbox.drain(|task| seen.push(task));
            assert_eq!(seen, [a, b]);
            assert!(inbox.fall_asleep());
            inbox.wake_up();
            assert!(!inbox.post(a), "the owner woke by itself");
            inbox.drain(drop);
        });
    }
}
