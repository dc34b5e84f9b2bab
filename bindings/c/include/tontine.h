/*
 * Tontine: messages between Linux processes that survive kill -9.
 *
 * Compile with `cc program.c $(pkg-config --cflags --libs tontine)`.
 *
 * - A function that fails returns -1, or NULL if it returns a pointer, and sets errno.
 *   tontine_last_error() returns the error as text, with the process that caused it. The numbers:
 *
 *     EOWNERDEAD       the receiver died; tontine_sender_take_unread() returns what it did not read
 *     EPIPE            the receiver closed its mailbox on purpose; likewise
 *     EAGAIN           nothing to receive, or no free space to send, in a call that does not block
 *     ETIMEDOUT        the same at the end of the timeout
 *     EMSGSIZE         the message exceeds the lane's cap, or your buffer (then it is kept)
 *     ECONNREFUSED     no process has a mailbox at the address
 *     EADDRINUSE       the address has a live owner
 *     EACCES           the other end runs as a user that is not allowed
 *     ECONNABORTED     the mailbox refused the lane
 *     EPROTO           the other end broke the protocol; only its own lane is closed
 *     EPROTONOSUPPORT  the other end speaks another version of the protocol
 *     EOPNOTSUPP       this thread was made without the C library and cannot hold a life
 *     ESTALE           the handle belongs to the process that forked this one
 *     ENOBUFS          a limited resource of this process is used up
 *     EFBIG            shared memory would exceed the process's file size limit (RLIMIT_FSIZE)
 *     EPROTOTYPE       the socket is not SOCK_SEQPACKET of AF_UNIX, or not connected
 *     EBUSY            space is reserved: commit it or cancel it first
 *     ENODATA          what was asked for does not exist
 *     EINVAL, E2BIG    a pointer is NULL, an option is unknown, an address is invalid
 *     ENOTRECOVERABLE  a bug in the library; the handle can only be closed
 *
 *   and any other that a system call returned.
 * - A handle belongs to the process that opened it, until it is closed, exactly once. It may move
 *   between threads, but two threads must not use one handle at the same time. Closing NULL does
 *   nothing; any other call with NULL fails with EINVAL.
 * - A forked child cannot use its parent's handles; it may close them. exec ends all handles.
 * - A descriptor that a function returns stays the library's: wait on it, do not close or read it.
 * - An address is a path, or @ and a name in the abstract namespace. bind and connect make a
 *   relative path absolute. A path of more than 103 bytes needs /proc.
 * - Timeouts are in milliseconds; a negative one waits indefinitely. A signal handler does not end
 *   a wait.
 * - If size_t length follows a pointer, the pointer leads to that many bytes; it may be NULL if
 *   length is 0.
 *
 * Generated from bindings/c/src by `cargo xtask header`: change it there.
 */

#ifndef TONTINE_H
#define TONTINE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 wait_strategy: poll; the lowest latency, at the price of a whole processor.
 */
#define TONTINE_WAIT_STRATEGY_SPIN 1

/*
 wait_strategy: sleep in the kernel at once.
 */
#define TONTINE_WAIT_STRATEGY_SLEEP 2

/*
 wait_strategy: poll for spin_ns, then sleep.
 */
#define TONTINE_WAIT_STRATEGY_SPIN_THEN_SLEEP 3

/*
 fences: none in a send; an end that goes to sleep interrupts the other processors.
 */
#define TONTINE_FENCES_ASYMMETRIC 1

/*
 fences: one in each send, about 5 ns.
 */
#define TONTINE_FENCES_SYMMETRIC 2

/*
 on_death: sends fail with EOWNERDEAD; tontine_sender_take_unread() returns what was not
 acknowledged.
 */
#define TONTINE_ON_DEATH_FAIL 1

/*
 on_death: the sender keeps what was not acknowledged and hands it to the next owner of the
 address.
 */
#define TONTINE_ON_DEATH_WAIT_FOR_SUCCESSOR 2

/*
 on_death: the same, also if the receiver closes its mailbox (without this: EPIPE).
 */
#define TONTINE_ON_DEATH_WAIT_THROUGH_RESTARTS 3

/*
 allow: peers of the own effective user only.
 */
#define TONTINE_ALLOW_OWN_UID 1

/*
 allow: peers of allowed_uid too.
 */
#define TONTINE_ALLOW_UID 2

/*
 allow: peers of any user.
 */
#define TONTINE_ALLOW_ANY_UID 3

/*
 The receiving end: messages of many senders.
 */
typedef struct tontine_mailbox tontine_mailbox;

/*
 The sending end of one lane to a mailbox.
 */
typedef struct tontine_sender tontine_sender;

/*
 Reports whether another process is alive.
 */
typedef struct tontine_watch tontine_watch;

/*
 Settings of either end; an end ignores those that it does not use. Clear the struct, set
 struct_size, then the settings that are to differ from the defaults:

     tontine_options options = { .struct_size = sizeof options, .lane_cap = 1 << 20 };

 0 is the default of every setting. A program that was compiled with an older, smaller struct
 keeps working; one compiled with a newer, larger struct works if it sets nothing that is new
 (else: E2BIG).
 */
typedef struct tontine_options {
  /*
   sizeof(tontine_options)
   */
  size_t struct_size;
  /*
   Maximum bytes in the chunks of one lane; default 64 MiB. The smaller of both ends' caps
   applies.
   */
  uint64_t lane_cap;
  /*
   Maximum bytes in the chunks of all lanes of a mailbox together; default 1 GiB.
   */
  uint64_t mailbox_cap;
  /*
   Maximum number of senders that a mailbox accepts at once; default 1024.
   */
  uint64_t max_lanes;
  /*
   Bytes in a sender's first chunk; default 4096.
   */
  uint64_t first_chunk;
  /*
   Nanoseconds to poll before sleeping; default 20000.
   */
  uint64_t spin_ns;
  /*
   Maximum time for a peer to send its first message after it has connected; default 5000.
   */
  uint64_t handshake_timeout_ms;
  /*
   Time for which a lane must have been empty before it returns its large chunk; default 50.
   */
  uint64_t shrink_after_ms;
  /*
   TONTINE_WAIT_STRATEGY_...; default SPIN_THEN_SLEEP.
   */
  uint32_t wait_strategy;
  /*
   TONTINE_FENCES_...; default ASYMMETRIC.
   */
  uint32_t fences;
  /*
   TONTINE_ON_DEATH_...; default FAIL.
   */
  uint32_t on_death;
  /*
   TONTINE_ALLOW_...; default OWN_UID.
   */
  uint32_t allow;
  /*
   User id for TONTINE_ALLOW_UID.
   */
  uint32_t allowed_uid;
  /*
   Permissions of the socket in the file system; default 0600, at most 0777.
   */
  uint32_t mode;
} tontine_options;

/*
 The process at the other end, as the kernel identified it when it connected.
 */
typedef struct tontine_peer {
  /*
   Process id in this process's PID namespace; 0 if the process is not visible from here.
   */
  uint32_t pid;
  /*
   User id.
   */
  uint32_t uid;
} tontine_peer;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the text of the error of this thread's last call that failed: which peer caused it, what
 was expected, what to do. "" if none has failed. Valid until another call fails in this thread.
 errno has the number.
 */
const char *tontine_last_error(void);

/*
 Returns the library's version, as in "0.1.0".
 */
const char *tontine_version(void);

/*
 Gives this process a life, which lasts as long as the process; a process that has one keeps it.
 The main thread holds it if it calls this, else a new anchor thread. Opening a mailbox or a
 sender does the same. Returns 0; EAGAIN if no thread can be started.
 */
int tontine_life_register(void);

/*
 Gives this process a life, if it has none, held by the calling thread; it ends with that thread.
 */
int tontine_life_register_thread(void);

/*
 Gives this process a life, if it has none, held by a new thread that does nothing else: for a
 main thread that exits before the process does. The thread takes 64 KiB of address space.
 */
int tontine_life_register_anchor_thread(void);

/*
 Returns the descriptor by which other processes watch this one: pass it to them, over a Unix
 socket or by inheritance. ENODATA if the process has no life.
 */
int tontine_life_fd(void);

/*
 Watches the process that returned life_fd from tontine_life_fd(). The descriptor stays the
 caller's and is not needed afterwards.
 */
struct tontine_watch *tontine_watch_open(int life_fd);

/*
 Returns 1 while the process is alive and 0 once it has ended: one load of memory, no system
 call.
 */
int tontine_watch_is_alive(struct tontine_watch *watch);

/*
 Closes the watch.
 */
void tontine_watch_close(struct tontine_watch *watch);

/*
 Opens a mailbox at the address, and takes the address over if its last owner is dead. options
 may be NULL. EADDRINUSE if the address has a live owner.
 */
struct tontine_mailbox *tontine_mailbox_bind(const char *at,
                                             const struct tontine_options *options);

/*
 Opens a mailbox without an address: it receives by the sockets that tontine_mailbox_adopt()
 adds.
 */
struct tontine_mailbox *tontine_mailbox_unbound(const struct tontine_options *options);

/*
 Adds a connected SOCK_SEQPACKET socket, whose other end is given to
 tontine_sender_from_socket(). From then on the socket is the library's, also if the call fails
 (except with EBADF or EINVAL).
 */
int tontine_mailbox_adopt(struct tontine_mailbox *mailbox,
                          int socket);

/*
 Blocks until a message has arrived, copies it into the buffer and returns its length;
 acknowledges the message before it. EMSGSIZE if it is longer than the buffer: it is kept and
 received again (see tontine_mailbox_next_length()).
 */
ssize_t tontine_mailbox_recv(struct tontine_mailbox *mailbox,
                             void *buffer,
                             size_t size);

/*
 Receives like tontine_mailbox_recv(), without blocking: EAGAIN if there is no message.
 */
ssize_t tontine_mailbox_try_recv(struct tontine_mailbox *mailbox,
                                 void *buffer,
                                 size_t size);

/*
 Receives like tontine_mailbox_recv(), blocking for at most timeout_ms: then ETIMEDOUT.
 */
ssize_t tontine_mailbox_recv_timeout(struct tontine_mailbox *mailbox,
                                     void *buffer,
                                     size_t size,
                                     int64_t timeout_ms);

/*
 Returns the length of the message that was last kept because the buffer was too small; ENODATA
 if none was. The next message may still be another sender's.
 */
ssize_t tontine_mailbox_next_length(struct tontine_mailbox *mailbox);

/*
 Stores the process that sent the message last received; ENODATA if there was none.
 */
int tontine_mailbox_peer(struct tontine_mailbox *mailbox, struct tontine_peer *peer);

/*
 Stores the lane by which the message last received came, as a number that no other lane of this
 mailbox has or will have: a process may have several lanes, and a process id may be reused.
 ENODATA if there was no message.
 */
int tontine_mailbox_sender(struct tontine_mailbox *mailbox,
                           uint64_t *sender);

/*
 Acknowledges the message last received: if this process dies, a successor does not receive it
 again. The next receiving call and tontine_mailbox_close() acknowledge too.
 */
int tontine_mailbox_ack(struct tontine_mailbox *mailbox);

/*
 Marks the message last received as unread: it is received again, or stays with its sender.
 */
int tontine_mailbox_requeue(struct tontine_mailbox *mailbox);

/*
 Returns the descriptor to wait on, with poll or epoll: readable when the mailbox has something
 to do. Call tontine_mailbox_arm() before waiting.
 */
int tontine_mailbox_fd(struct tontine_mailbox *mailbox);

/*
 Prepares for waiting on the descriptor. Returns 1 if there is nothing to receive: wait. Returns
 0 if there may be: call tontine_mailbox_try_recv() until it fails with EAGAIN, then arm again.
 Acknowledges the message last received.
 */
int tontine_mailbox_arm(struct tontine_mailbox *mailbox);

/*
 Returns the number of connected senders.
 */
ssize_t tontine_mailbox_sender_count(struct tontine_mailbox *mailbox);

/*
 Removes and returns, as an errno value, the oldest error of a lane that had to be closed or of a
 peer that was refused; tontine_last_error() then returns its text. Returns 0 if there is none.
 */
int tontine_mailbox_next_error(struct tontine_mailbox *mailbox);

/*
 Closes the mailbox: its senders get EPIPE and keep what is unread. In a forked child it only
 frees the copy.
 */
void tontine_mailbox_close(struct tontine_mailbox *mailbox);

/*
 Opens a lane to the mailbox at the address. options may be NULL. Returns as soon as the socket
 is connected; the receiver accepts the connection when it next receives. ECONNREFUSED if no
 process has a mailbox there.
 */
struct tontine_sender *tontine_sender_connect(const char *to,
                                              const struct tontine_options *options);

/*
 Opens a lane over a connected SOCK_SEQPACKET socket, whose other end is given to
 tontine_mailbox_adopt(). From then on the socket is the library's, also if the call fails
 (except with EBADF, EINVAL or E2BIG).
 */
struct tontine_sender *tontine_sender_from_socket(int socket,
                                                  const struct tontine_options *options);

/*
 Opens another lane to the same mailbox, for another thread.
 */
struct tontine_sender *tontine_sender_clone(struct tontine_sender *sender);

/*
 Sends a message; blocks while the lane has no free space for it. To a live receiver that is
 awake it makes no system call. EOWNERDEAD if the receiver is dead, EPIPE if it has closed; then
 nothing was sent.
 */
int tontine_sender_send(struct tontine_sender *sender,
                        const void *message,
                        size_t length);

/*
 Sends like tontine_sender_send(), without blocking: EAGAIN if the lane has no free space.
 */
int tontine_sender_try_send(struct tontine_sender *sender,
                            const void *message,
                            size_t length);

/*
 Sends like tontine_sender_send(), blocking for at most timeout_ms: then ETIMEDOUT.
 */
int tontine_sender_send_timeout(struct tontine_sender *sender,
                                const void *message,
                                size_t length,
                                int64_t timeout_ms);

/*
 Reserves space for a message of length bytes, to be written in place; blocks while the lane has
 no free space for it. Then call tontine_sender_commit() or tontine_sender_cancel(): everything
 else on this sender fails with EBUSY until then, and the pointer is valid until then.
 */
void *tontine_sender_reserve(struct tontine_sender *sender,
                             size_t length);

/*
 Sends the message that was written to the reserved space. ENODATA if no space is reserved.
 */
int tontine_sender_commit(struct tontine_sender *sender);

/*
 Releases the reserved space: nothing was sent.
 */
int tontine_sender_cancel(struct tontine_sender *sender);

/*
 Takes back the next message that a dead or closed receiver did not acknowledge, in the order in
 which they were sent: copies it into the buffer and returns its length. EAGAIN while the
 receiver is alive; ENODATA when no message is left; EMSGSIZE if it is longer than the buffer: it
 is kept (see tontine_sender_next_unread_length()).
 */
ssize_t tontine_sender_take_unread(struct tontine_sender *sender,
                                   void *buffer,
                                   size_t size);

/*
 Returns the length of the message that tontine_sender_take_unread() takes next; fails like it,
 but not with EMSGSIZE.
 */
ssize_t tontine_sender_next_unread_length(struct tontine_sender *sender);

/*
 Returns the unacknowledged bytes in the lane, padding and 8 per message included.
 */
ssize_t tontine_sender_unread_bytes(struct tontine_sender *sender);

/*
 Blocks until the receiver has acknowledged every message, for at most timeout_ms: then
 ETIMEDOUT. EOWNERDEAD or EPIPE if the receiver will not read them; with one of
 TONTINE_ON_DEATH_WAIT_... the sender waits for the next owner instead. Succeeds also if the
 receiver ends after it has acknowledged everything.
 */
int tontine_sender_wait_acked(struct tontine_sender *sender,
                              int64_t timeout_ms);

/*
 Does the lane's pending work: reads the receiver's control messages, returns memory, looks for a
 successor. No thread does this work: call it when the descriptor is readable, or from time to
 time.
 */
int tontine_sender_service(struct tontine_sender *sender);

/*
 Returns the descriptor to wait on: readable when tontine_sender_service() has something to do.
 It changes when a successor accepts the lane.
 */
int tontine_sender_fd(struct tontine_sender *sender);

/*
 Stores the receiver's process; ENODATA until it has accepted the lane.
 */
int tontine_sender_peer(struct tontine_sender *sender, struct tontine_peer *peer);

/*
 Returns the length of the longest message that the lane's cap allows; the receiver's cap counts
 too, once it has accepted the lane.
 */
ssize_t tontine_sender_max_message_length(struct tontine_sender *sender);

/*
 Closes the lane. A live receiver still reads what is in it.
 */
void tontine_sender_close(struct tontine_sender *sender);

/*
 Creates the textbook's heap: an implicit list of blocks in one arena, first fit, one lock for
 all threads. It is made to learn from and to compare with, not to be fast. Returns 0; -1 and
 errno EBUSY if the heap exists already.
 */
int mm_init(void);

/*
 Allocates a block of at least `size` bytes, aligned to 16. It is valid until mm_free or
 mm_deinit. Returns NULL and sets errno on failure: ENOMEM, no space; EUCLEAN, a write beyond a
 block's end has corrupted the heap; EINVAL, there is no heap.
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
