/*
 * Tontine: messages between Linux processes that survive kill -9.
 *
 * Compile with `cc program.c $(pkg-config --cflags --libs tontine)`.
 *
 * - A function that fails returns -1, or NULL where it returns a pointer, and sets errno; what is
 *   wrong in words, and who is to blame, says tontine_last_error(). The numbers:
 *
 *     EOWNERDEAD       the reader died; tontine_sender_unread() gives back what it did not read
 *     EPIPE            the reader closed its mailbox on purpose; likewise
 *     EAGAIN           nothing to receive, or no room to send, and you did not want to wait
 *     ETIMEDOUT        the same after the time that you wanted to wait
 *     EMSGSIZE         a message that no lane takes, or one longer than your buffer (it is kept)
 *     ECONNREFUSED     nobody has a mailbox at the address
 *     EADDRINUSE       the address has a living owner
 *     EACCES           the other end runs as a user that is not allowed
 *     ECONNABORTED     the mailbox refused the lane
 *     EPROTO           the other end broke the protocol; only its own lane is closed
 *     EPROTONOSUPPORT  the other end speaks another version of the protocol
 *     EOPNOTSUPP       this thread was made without the C library and cannot hold a life
 *     ESTALE           the handle belongs to the process that forked this one
 *     ENOBUFS          a fixed number of something is used up in this process
 *     EFBIG            shared memory beyond the process's limit on files (RLIMIT_FSIZE)
 *     EPROTOTYPE       a socket of another kind than SOCK_SEQPACKET of AF_UNIX, or not connected
 *     EBUSY            room is reserved: commit it or cancel it first
 *     ENODATA          there is nothing that could be asked for
 *     EINVAL, E2BIG    NULL where it must not be, an unknown option, a bad address
 *     ENOTRECOVERABLE  a bug in the library; the handle can only be closed
 *
 *   and any other that a system call gave.
 * - A handle belongs to whoever opened it, until it is closed, exactly once. It may move between
 *   threads, but two threads must not use one handle at the same time. NULL is no handle: closing
 *   it does nothing, anything else fails with EINVAL.
 * - A forked child cannot use its parent's handles; it may close them. exec ends all.
 * - A descriptor that a function returns stays the library's: wait on it, do not close or read it.
 * - An address is a path, or @ and a name in the abstract namespace. A relative path is made absolute
 *   when it is bound or connected to. One of more than 103 bytes needs /proc.
 * - Times are in milliseconds; negative: without end. A signal handler does not end a wait.
 * - Where size_t length follows a pointer, the pointer leads to so many bytes; it may be NULL where
 *   there are none.
 *
 * Generated from bindings/c/src by `cargo xtask header`: change it there.
 */

#ifndef TONTINE_H
#define TONTINE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 waiting: look again and again; the shortest latency, a whole processor.
 */
#define TONTINE_WAITING_SPIN 1

/*
 waiting: only in the kernel.
 */
#define TONTINE_WAITING_SLEEP 2

/*
 waiting: look for spin_ns, then sleep.
 */
#define TONTINE_WAITING_SPIN_THEN_SLEEP 3

/*
 fences: none in a send; whoever goes to sleep interrupts the other processors.
 */
#define TONTINE_FENCES_ASYMMETRIC 1

/*
 fences: one in each send, about 5 ns.
 */
#define TONTINE_FENCES_SYMMETRIC 2

/*
 on_death: sends fail with EOWNERDEAD; tontine_sender_unread() gives back what was not read.
 */
#define TONTINE_ON_DEATH_FAIL 1

/*
 on_death: what was not read is kept for the next owner of the address, and handed over to it.
 */
#define TONTINE_ON_DEATH_WAIT_FOR_SUCCESSOR 2

/*
 on_death: the same, also where the reader closes its mailbox (without this: EPIPE).
 */
#define TONTINE_ON_DEATH_WAIT_THROUGH_RESTARTS 3

/*
 allow: peers of the own effective user only.
 */
#define TONTINE_ALLOW_OWN_UID 1

/*
 allow: those of allowed_uid too.
 */
#define TONTINE_ALLOW_UID 2

/*
 allow: anyone's.
 */
#define TONTINE_ALLOW_ANY_UID 3

/*
 One receiver's bundle of lanes.
 */
typedef struct tontine_mailbox tontine_mailbox;

/*
 One sender's lane to a mailbox.
 */
typedef struct tontine_sender tontine_sender;

/*
 Tells whether another process is alive.
 */
typedef struct tontine_watch tontine_watch;

/*
 Settings of either end; what an end does not use it ignores. Clear it, set struct_size, then
 what you want to differ:

     tontine_options options = { .struct_size = sizeof options, .lane_cap = 1 << 20 };

 0 stands for the default everywhere. A program that was compiled with an older, smaller struct
 goes on working; one compiled with a newer, larger one does where it does not use what is new
 (else: E2BIG).
 */
typedef struct tontine_options {
  /*
   sizeof(tontine_options)
   */
  size_t struct_size;
  /*
   Bytes of chunks that one lane may have: 64 MiB. Of the two ends' the smaller counts.
   */
  uint64_t lane_cap;
  /*
   Bytes of chunks that all lanes of a mailbox may have together: 1 GiB.
   */
  uint64_t mailbox_cap;
  /*
   Senders that a mailbox takes at once: 1024.
   */
  uint64_t max_lanes;
  /*
   Bytes of a sender's first chunk: 4096.
   */
  uint64_t first_chunk;
  /*
   Nanoseconds to spin before sleeping: 20000.
   */
  uint64_t spin_ns;
  /*
   How long a peer may take to say who it is: 5000.
   */
  uint64_t handshake_deadline_ms;
  /*
   How long a lane must have been empty before its large chunk is given back: 50.
   */
  uint64_t give_back_after_ms;
  /*
   TONTINE_WAITING_...: SPIN_THEN_SLEEP.
   */
  uint32_t waiting;
  /*
   TONTINE_FENCES_...: ASYMMETRIC.
   */
  uint32_t fences;
  /*
   TONTINE_ON_DEATH_...: FAIL.
   */
  uint32_t on_death;
  /*
   TONTINE_ALLOW_...: OWN_UID.
   */
  uint32_t allow;
  /*
   For TONTINE_ALLOW_UID.
   */
  uint32_t allowed_uid;
  /*
   Permissions of the socket in the file system: 0600.
   */
  uint32_t mode;
} tontine_options;

/*
 The process at the other end, as the kernel named it when it connected.
 */
typedef struct tontine_peer {
  /*
   In this process's PID namespace; 0 where it cannot be seen from here.
   */
  uint32_t pid;
  /*
   Its user.
   */
  uint32_t uid;
} tontine_peer;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 What went wrong in this thread's last call that failed, in words, for people: who is to blame,
 what was expected, what to do. "" where none has failed. Valid until another call fails in this
 thread. errno has the number.
 */
const char *tontine_last_error(void);

/*
 The library's version, as in "0.1.0".
 */
const char *tontine_version(void);

/*
 Gives this process a life, which lasts as long as the process; a process that has one keeps it.
 The main thread holds it if it calls this, else a new anchor thread. Opening a mailbox or a
 sender does the same. Returns 0; EAGAIN if no thread can be started.
 */
int tontine_life_join(void);

/*
 Gives this process a life, if it has none, held by the calling thread; it ends with that thread.
 */
int tontine_life_join_thread(void);

/*
 Gives this process a life, if it has none, held by a new thread that does nothing else: for a
 main thread that exits before the process does. The thread takes 64 KiB of address space.
 */
int tontine_life_with_anchor_thread(void);

/*
 The descriptor by which others watch this process: pass it to them, over a Unix socket or by
 inheritance. ENODATA where the process has no life.
 */
int tontine_life_fd(void);

/*
 Watches the process whose tontine_life_fd() this is. The descriptor stays the caller's and
 is not needed afterwards.
 */
struct tontine_watch *tontine_watch_open(int life_fd);

/*
 1 while the process is alive, 0 once it has ended: one load of memory, no system call.
 */
int tontine_watch_is_alive(struct tontine_watch *watch);

/*
 Ends the watch.
 */
void tontine_watch_close(struct tontine_watch *watch);

/*
 Opens a mailbox at the address, in place of a dead owner if there was one. options may be NULL.
 EADDRINUSE where the address has a living owner.
 */
struct tontine_mailbox *tontine_mailbox_bind(const char *at,
                                             const struct tontine_options *options);

/*
 Opens a mailbox without an address: connected sockets are given to it.
 */
struct tontine_mailbox *tontine_mailbox_unbound(const struct tontine_options *options);

/*
 Takes a connected SOCK_SEQPACKET socket, whose other end is given to tontine_sender_over(). From
 then on it is the library's, also where the call fails (but not with EBADF or EINVAL).
 */
int tontine_mailbox_adopt(struct tontine_mailbox *mailbox,
                          int socket);

/*
 Waits for the next message, copies it into the buffer and returns its length; acknowledges the
 one before. EMSGSIZE where it is longer than the buffer: it is kept and received again (see
 tontine_mailbox_next_length()).
 */
ssize_t tontine_mailbox_recv(struct tontine_mailbox *mailbox,
                             void *buffer,
                             size_t size);

/*
 As tontine_mailbox_recv(), without waiting: EAGAIN where there is none.
 */
ssize_t tontine_mailbox_try_recv(struct tontine_mailbox *mailbox,
                                 void *buffer,
                                 size_t size);

/*
 As tontine_mailbox_recv(), for at most so many milliseconds: then ETIMEDOUT.
 */
ssize_t tontine_mailbox_recv_timeout(struct tontine_mailbox *mailbox,
                                     void *buffer,
                                     size_t size,
                                     int64_t timeout_ms);

/*
 The length of the message that was last kept because the buffer was too small; ENODATA where
 none was. The next message may still be another, of another sender.
 */
ssize_t tontine_mailbox_next_length(struct tontine_mailbox *mailbox);

/*
 Who sent the message last received; ENODATA where there was none.
 */
int tontine_mailbox_peer(struct tontine_mailbox *mailbox, struct tontine_peer *peer);

/*
 The lane by which the message last received came, as a number that no other lane of this mailbox
 has or will have: a process may have several, and a process id may be used again. ENODATA where
 there was none.
 */
int tontine_mailbox_sender(struct tontine_mailbox *mailbox,
                           uint64_t *sender);

/*
 Acknowledges the message last received: should this process die, a successor does not get it
 again. The next receiving call and tontine_mailbox_close() do it too.
 */
int tontine_mailbox_acknowledge(struct tontine_mailbox *mailbox);

/*
 Takes the message last received for not received: it is received again, or stays the sender's.
 */
int tontine_mailbox_put_back(struct tontine_mailbox *mailbox);

/*
 The descriptor to wait on, with poll or epoll: readable when there is something to do. Call
 tontine_mailbox_arm() before waiting.
 */
int tontine_mailbox_fd(struct tontine_mailbox *mailbox);

/*
 Prepares for waiting on the descriptor. 1: nothing is there, wait; 0: call
 tontine_mailbox_try_recv() until it says EAGAIN, then arm again. Acknowledges the message last
 received.
 */
int tontine_mailbox_arm(struct tontine_mailbox *mailbox);

/*
 How many senders are connected.
 */
ssize_t tontine_mailbox_lanes(struct tontine_mailbox *mailbox);

/*
 The error number of a lane that had to be closed or of a peer that was refused, the oldest
 first, each told once; tontine_last_error() then has the words. 0 where nothing was wrong.
 */
int tontine_mailbox_fault(struct tontine_mailbox *mailbox);

/*
 Closes the mailbox: its senders get EPIPE and keep what is unread. In a forked child it only
 frees the copy.
 */
void tontine_mailbox_close(struct tontine_mailbox *mailbox);

/*
 Begins a lane to the mailbox at the address. options may be NULL. It returns as soon as the
 connection stands; the reader takes it when it next receives. ECONNREFUSED where nobody has a
 mailbox there.
 */
struct tontine_sender *tontine_sender_connect(const char *to,
                                              const struct tontine_options *options);

/*
 Begins a lane over a connected SOCK_SEQPACKET socket, whose other end is given to
 tontine_mailbox_adopt(). From then on it is the library's, also where the call fails (but not
 with EBADF, EINVAL or E2BIG).
 */
struct tontine_sender *tontine_sender_over(int socket,
                                           const struct tontine_options *options);

/*
 A lane of its own to the same mailbox, for another thread.
 */
struct tontine_sender *tontine_sender_clone(struct tontine_sender *sender);

/*
 Sends a message; waits for room where there is none. To a living reader that is awake it makes
 no system call. EOWNERDEAD where the reader is dead, EPIPE where it has closed; then nothing was
 sent.
 */
int tontine_sender_send(struct tontine_sender *sender,
                        const void *message,
                        size_t length);

/*
 As tontine_sender_send(), without waiting: EAGAIN where there is no room.
 */
int tontine_sender_try_send(struct tontine_sender *sender,
                            const void *message,
                            size_t length);

/*
 As tontine_sender_send(), waiting for at most so many milliseconds: then ETIMEDOUT.
 */
int tontine_sender_send_timeout(struct tontine_sender *sender,
                                const void *message,
                                size_t length,
                                int64_t timeout_ms);

/*
 Room for a message of so many bytes, to be written in place; waits for it. Then call
 tontine_sender_commit() or tontine_sender_cancel(): everything else on this sender fails with
 EBUSY until then, and the pointer ends with either.
 */
void *tontine_sender_reserve(struct tontine_sender *sender,
                             size_t length);

/*
 Sends what stands in the reserved room. ENODATA where nothing is reserved.
 */
int tontine_sender_commit(struct tontine_sender *sender);

/*
 Gives the reserved room back: nothing was sent.
 */
int tontine_sender_cancel(struct tontine_sender *sender);

/*
 Takes back the next message that a dead or closed reader did not acknowledge, in the order in
 which they were sent: copies it into the buffer and returns its length. EAGAIN while the reader
 is alive; ENODATA when there is none any more; EMSGSIZE where it is longer than the buffer: it
 is kept (see tontine_sender_unread_length()).
 */
ssize_t tontine_sender_unread(struct tontine_sender *sender,
                              void *buffer,
                              size_t size);

/*
 The length of the message that tontine_sender_unread() gives next; its errors but EMSGSIZE.
 */
ssize_t tontine_sender_unread_length(struct tontine_sender *sender);

/*
 Bytes in the lane that the reader has not acknowledged, 8 a message and padding included.
 */
ssize_t tontine_sender_unread_bytes(struct tontine_sender *sender);

/*
 Waits until everything is read and acknowledged: ETIMEDOUT, or EOWNERDEAD or EPIPE where the
 reader will not read it. With one of TONTINE_ON_DEATH_WAIT_... a death is waited out. What
 became of the reader after it had read everything does not matter.
 */
int tontine_sender_wait_read(struct tontine_sender *sender,
                             int64_t timeout_ms);

/*
 Does what there is to do between messages: takes word of room, gives memory back, looks for a
 successor. There is no thread that would do it: call it when the descriptor is readable, or now
 and then.
 */
int tontine_sender_service(struct tontine_sender *sender);

/*
 The descriptor to wait on: readable when tontine_sender_service() has something to do. It
 changes when a successor takes the lane.
 */
int tontine_sender_fd(struct tontine_sender *sender);

/*
 Who receives; ENODATA until it has taken the lane.
 */
int tontine_sender_peer(struct tontine_sender *sender, struct tontine_peer *peer);

/*
 The longest message that the lane's cap allows; the reader's cap counts too, once it has taken
 the lane.
 */
ssize_t tontine_sender_longest_message(struct tontine_sender *sender);

/*
 Closes the lane. A living reader still reads what is in it.
 */
void tontine_sender_close(struct tontine_sender *sender);

/*
 Creates the textbook's heap: an implicit list of blocks in one arena, first fit, one lock for all
 threads. It is made to learn from and to compare with, not to be fast. Returns 0; -1 and errno
 EBUSY if the heap exists already.
 */
int mm_init(void);

/*
 Allocates a block of at least `size` bytes, aligned to 16. It is valid until mm_free or mm_deinit.
 Returns NULL and sets errno on failure: ENOMEM, no space; EUCLEAN, a write beyond a block's end
 has corrupted the heap; EINVAL, there is no heap.
 */
void *mm_malloc(size_t size);

/*
 Frees a block that mm_malloc has returned and that the program does not use any more; does
 nothing if it is NULL. Returns 0; -1 and errno if the mistake can be detected: EFAULT or EINVAL,
 no block of this heap begins there; EALREADY, it is already free; EUCLEAN, a write beyond a
 block's end has corrupted the heap.
 */
int mm_free(void *block);

/*
 Checks the whole heap, and prints all its blocks if `verbose` is not 0. Returns 0; -1 and errno
 EUCLEAN if a block is corrupted.
 */
int mm_checkheap(int verbose);

/*
 Frees the heap with all its blocks.
 */
void mm_deinit(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TONTINE_H */
