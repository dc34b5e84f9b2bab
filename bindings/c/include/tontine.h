/*
 * Tontine: messages between Linux processes that survive kill -9.
 *
 * Compile with `cc program.c $(pkg-config --cflags --libs tontine)`.
 *
 * A mailbox receives the messages of many processes. Each sender has a lane to it: memory that the
 * two processes share. Opening a mailbox or a sender gives the process a life: a word of shared
 * memory that the kernel marks when the process ends. The process at the other end of each lane
 * reads this word to detect the death. One thread holds the life: the main thread if it registers
 * the life, otherwise an anchor thread, which the library starts and which does nothing else.
 *
 * The shared heap and the signals of the Rust library have no C interface yet.
 *
 * - A function that returns int returns 0 on success, unless its comment names another result. A
 *   function that fails returns -1, or NULL if it returns a pointer, and sets errno.
 *   tontine_last_error() returns the error as text, with the process that caused it. The numbers:
 *
 *     EOWNERDEAD       the receiver died; tontine_sender_take_unread() returns the unread messages
 *     EPIPE            the receiver closed its mailbox on purpose; unread messages as above
 *     EHOSTUNREACH     a relay could not reach the receiver's host; unread messages as above
 *     EAGAIN           nothing to receive, or no free space to send, in a call that does not block
 *     ETIMEDOUT        nothing to receive, or no free space to send, before the timeout expired
 *     EINTR            a signal handler ran while the call slept, see below
 *     ECANCELED        another thread woke the call: tontine_waker_wake()
 *     ENOTCONN         every sender has ended, and the mailbox reports that: report_no_senders
 *     EMSGSIZE         the message exceeds the lane's cap, or your buffer (then it is kept)
 *     ECONNREFUSED     no process has a mailbox at the address
 *     EADDRINUSE       the address has a live owner
 *     EIDRM            the path of the mailbox or its lock file was removed or replaced
 *     EACCES           the other end runs as a user that is not allowed
 *     ECONNABORTED     the mailbox refused the lane
 *     EPROTO           the other end broke the protocol; only its own lane is closed
 *     EPROTONOSUPPORT  the other end speaks another version of the protocol
 *     EOPNOTSUPP       this thread was made without the C library and cannot hold a life
 *     ESTALE           the handle belongs to the process that forked this one
 *     ENOBUFS          a limited resource of this process is used up
 *     EDQUOT           chunks that left the lane use up its cap, although everything is read
 *     EFBIG            shared memory would exceed the process's file size limit (RLIMIT_FSIZE)
 *     EPROTOTYPE       the socket is not SOCK_SEQPACKET of AF_UNIX, or not connected
 *     EBUSY            space is reserved: commit it or cancel it first
 *     ENODATA          the requested value does not exist
 *     ENOSYS           a mailbox in causal order needs the processor's counter as the clock
 *     EINVAL, E2BIG    a pointer is NULL, an option is unknown, an address is invalid
 *     ENOTRECOVERABLE  a bug in the library; the handle can only be closed
 *
 *   and any other number that a system call returned.
 * - These functions block: tontine_mailbox_recv(), tontine_mailbox_recv_batch() and
 *   tontine_mailbox_recv_timeout() until a message has arrived; tontine_sender_send(),
 *   tontine_sender_send_timeout() and tontine_sender_reserve() while the lane has no free space;
 *   tontine_sender_wait_acked() until every message is acknowledged. tontine_sender_connect() and
 *   tontine_sender_clone() wait if the mailbox has too many new connections, for at most the
 *   handshake timeout, and if the address has no owner, for at most wait_for_owner_ms.
 * - If a sender's process exits or is killed, the receiver still receives everything that was sent.
 *   If the receiver's process ends, the messages that it has not acknowledged stay in memory that
 *   the sender owns (tontine_sender_take_unread()).
 * - A handle belongs to the process that opened it, which must close it exactly once. It may
 *   move between threads, but two threads must not use one handle at the same time, except a
 *   waker's. Closing NULL does nothing; any other call with NULL fails with EINVAL.
 * - A forked child cannot use its parent's handles; it may close them. exec invalidates all
 *   handles.
 * - A descriptor that a function returns belongs to the library: wait on it, but do not close or
 *   read it.
 * - An address is a path, or @ and a name in the abstract namespace. bind and connect make a
 *   relative path absolute. A path of more than 103 bytes needs /proc.
 * - Timeouts are in milliseconds; a negative timeout waits indefinitely.
 * - A signal handler that runs while a call sleeps in the kernel ends the call with EINTR, with or
 *   without SA_RESTART; nothing was sent or received. A handler that runs while the call polls, or
 *   just before it sleeps, goes unnoticed. To notice every signal, block it, and wait on a signalfd
 *   together with the descriptor of the mailbox or the sender.
 * - No call is a cancellation point: a call holds off pthread_cancel() until it returns, also while
 *   it blocks. To end a receiving call that blocks, call tontine_waker_wake() in another thread
 *   (ECANCELED). To end any call that blocks, send its thread a signal with a handler (EINTR), or
 *   wait on the descriptor instead. A thread with asynchronous cancellation may call no function.
 * - If size_t length follows a pointer, the pointer points to that many bytes; it may be NULL if
 *   length is 0.
 *
 * Generated from bindings/c by `cargo xtask header`: edit src and cbindgen.toml there.
 */

#ifndef TONTINE_H
#define TONTINE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 Initialises a tontine_options, also in static storage, with the default of every setting.
 */
#define TONTINE_OPTIONS_INIT \
  { sizeof(tontine_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/*
 wait_strategy: poll continuously; lowest latency, but occupies a whole processor.
 */
#define TONTINE_WAIT_STRATEGY_SPIN 1

/*
 wait_strategy: sleep in the kernel immediately.
 */
#define TONTINE_WAIT_STRATEGY_SLEEP 2

/*
 wait_strategy: poll for spin_ns, then sleep.
 */
#define TONTINE_WAIT_STRATEGY_SPIN_THEN_SLEEP 3

/*
 wait_strategy: poll for up to 100 microseconds while that pays, then sleep.
 */
#define TONTINE_WAIT_STRATEGY_ADAPTIVE 4

/*
 fences: no memory fence in a send; an end that is about to sleep interrupts the other
 processors.
 */
#define TONTINE_FENCES_ASYMMETRIC 1

/*
 fences: one memory fence in each send, about 5 ns.
 */
#define TONTINE_FENCES_SYMMETRIC 2

/*
 on_death: if the receiver dies, sends fail with EOWNERDEAD; tontine_sender_take_unread() returns
 the messages that the receiver did not acknowledge.
 */
#define TONTINE_ON_DEATH_FAIL 1

/*
 on_death: if the receiver dies, the sender keeps the messages that the receiver did not
 acknowledge, and hands them to the next owner of the address. If the receiver closes its
 mailbox, sends fail with EPIPE.
 */
#define TONTINE_ON_DEATH_WAIT_FOR_SUCCESSOR 2

/*
 on_death: like TONTINE_ON_DEATH_WAIT_FOR_SUCCESSOR, but the sender waits even if the receiver
 closes its mailbox.
 */
#define TONTINE_ON_DEATH_WAIT_THROUGH_RESTARTS 3

/*
 allow: only processes of this process's effective user.
 */
#define TONTINE_ALLOW_OWN_UID 1

/*
 allow: processes of the user allowed_uid as well.
 */
#define TONTINE_ALLOW_UID 2

/*
 allow: processes of any user.
 */
#define TONTINE_ALLOW_ANY_UID 3

/*
 allow: a mailbox also accepts senders whose effective or supplementary group is allowed_gid.
 */
#define TONTINE_ALLOW_GID 4

/*
 order: each sender's messages are received in the order in which it sent them.
 */
#define TONTINE_ORDER_BY_SENDER 1

/*
 order: a message that was sent after another, by a sender that could know this, is also received
 after it. ENOSYS from tontine_mailbox_bind() and tontine_mailbox_unbound() if the kernel's clock
 source is not the processor's counter.
 */
#define TONTINE_ORDER_CAUSAL 2

/*
 raise_descriptor_limit: a lack of descriptors doubles the process's soft limit (RLIMIT_NOFILE),
 up to the hard limit.
 */
#define TONTINE_RAISE_DESCRIPTOR_LIMIT_YES 1

/*
 raise_descriptor_limit: the limit stays as it is.
 */
#define TONTINE_RAISE_DESCRIPTOR_LIMIT_NO 2

/*
 report_no_senders: receiving calls fail with ENOTCONN once every sender that had connected has
 ended and its messages were received, until the next sender connects.
 */
#define TONTINE_REPORT_NO_SENDERS_YES 1

/*
 report_no_senders: receiving calls wait for the next sender.
 */
#define TONTINE_REPORT_NO_SENDERS_NO 2

/*
 A mailbox: receives the messages of many senders.
 */
typedef struct tontine_mailbox tontine_mailbox;

/*
 A sender: the sending end of one lane to a mailbox.
 */
typedef struct tontine_sender tontine_sender;

/*
 Ends a receiving call of another thread.
 */
typedef struct tontine_waker tontine_waker;

/*
 A watch on another process's life: reports whether that process is alive.
 */
typedef struct tontine_watch tontine_watch;

/*
 Settings of a mailbox or a sender; each ignores the settings that only the other uses. Clear the
 struct, set struct_size, then the settings that should differ from the defaults, in C by names,
 or in C and in every C++ with an initialiser that sets struct_size alone:

     tontine_options options = { .struct_size = sizeof options, .lane_cap = 1 << 20 };

     tontine_options options = TONTINE_OPTIONS_INIT;
     options.lane_cap = 1 << 20;

 In every setting, 0 means the default. A program that was compiled with an older, smaller struct
 keeps working. A program that was compiled with a newer, larger struct works if it uses no new
 setting (otherwise: E2BIG).
 */
typedef struct tontine_options {
  /*
   sizeof(tontine_options).
   */
  size_t struct_size;
  /*
   Maximum number of bytes of shared memory for the messages of one lane; default 64 MiB. If
   the two ends have different caps, the smaller one applies.
   */
  uint64_t lane_cap;
  /*
   Maximum number of bytes of shared memory for all lanes of a mailbox together; default 1 GiB.
   */
  uint64_t mailbox_cap;
  /*
   Maximum number of senders that a mailbox accepts at the same time; default 1024.
   */
  uint64_t max_lanes;
  /*
   Number of bytes of shared memory with which a lane begins; default 4096. The lane grows up
   to lane_cap.
   */
  uint64_t first_chunk;
  /*
   Time to poll before sleeping with SPIN_THEN_SLEEP, in nanoseconds; default 20000.
   */
  uint64_t spin_ns;
  /*
   Maximum time that a peer may take, after it has connected, to send its first control
   message; default 5000.
   */
  uint64_t handshake_timeout_ms;
  /*
   Time for which a lane that has grown must be empty before it shrinks; default 50.
   */
  uint64_t shrink_after_ms;
  /*
   TONTINE_WAIT_STRATEGY_...; default SPIN_THEN_SLEEP if spin_ns is set, else ADAPTIVE.
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
  /*
   TONTINE_RAISE_DESCRIPTOR_LIMIT_...; default YES. Programs that the process starts afterwards
   inherit the raised limit.
   */
  uint32_t raise_descriptor_limit;
  /*
   TONTINE_ORDER_...; default BY_SENDER.
   */
  uint32_t order;
  /*
   Group id for TONTINE_ALLOW_GID.
   */
  uint32_t allowed_gid;
  /*
   TONTINE_REPORT_NO_SENDERS_...; default NO.
   */
  uint32_t report_no_senders;
  /*
   Maximum time for which tontine_sender_connect() waits while the address has no owner;
   default 0: it fails with ECONNREFUSED at once.
   */
  uint64_t wait_for_owner_ms;
} tontine_options;

/*
 The process at the other end, as the kernel identified it when it connected.
 */
typedef struct tontine_peer {
  /*
   Process id in this process's PID namespace; 0 if the process is not visible there.
   */
  uint32_t pid;
  /*
   User id.
   */
  uint32_t uid;
} tontine_peer;

/*
 A message, as tontine_mailbox_recv_batch() passes it to a function. The bytes are valid until
 that function returns.
 */
typedef struct tontine_message {
  /*
   The first byte.
   */
  const void *bytes;
  /*
   Number of bytes.
   */
  size_t length;
  /*
   Number of the lane on which it arrived, as tontine_mailbox_sender() stores it.
   */
  uint64_t sender;
  /*
   The process that sent it.
   */
  struct tontine_peer peer;
  /*
   Number of owners that may have received it before, as tontine_mailbox_redelivered() stores
   it.
   */
  uint32_t redelivered;
} tontine_message;

/*
 A function that tontine_mailbox_recv_batch() calls for each message, with the program's context.
 It returns normally, without a C++ exception, longjmp() or the end of the thread, and does not
 call a function with the mailbox.
 */
typedef void (*tontine_receive)(void *context, const struct tontine_message *message);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the text of the error of this thread's last failed call: the process that caused it, the
 expected value, and the remedy. Returns "" if no call has failed. The pointer is valid until
 another call fails in this thread, or the thread ends. errno contains the number of the error.
 */
const char *tontine_last_error(void);

/*
 Returns the library's version, as in "0.1.0".
 */
const char *tontine_version(void);

/*
 Gives this process a life, which lasts as long as the process. Does nothing if the process
 already has a life. If the main thread calls this function, the main thread holds the life;
 otherwise a new anchor thread holds it. Opening a mailbox or a sender does the same, so no
 program has to call this function. Returns 0; EAGAIN if no thread can be started.
 */
int tontine_life_register(void);

/*
 Gives this process a life, if it has none. The calling thread holds it: the life ends with that
 thread.
 */
int tontine_life_register_thread(void);

/*
 Gives this process a life, if it has none. A new anchor thread holds it. Use this function in a
 program whose main thread exits before the process does. The thread takes 64 KiB of address
 space.
 */
int tontine_life_register_anchor_thread(void);

/*
 Returns the descriptor of this process's life. Pass it to another process, over a Unix socket or
 by inheritance; tontine_watch_open() in that process returns a watch on this process. ENODATA if
 this process has no life.
 */
int tontine_life_fd(void);

/*
 Watches the process whose tontine_life_fd() returned life_fd. The descriptor still belongs to
 the caller, and can be closed afterwards.
 */
struct tontine_watch *tontine_watch_open(int life_fd);

/*
 Returns 1 while the process is alive, 0 once it has ended. The check is one load from memory,
 without a system call.
 */
int tontine_watch_is_alive(struct tontine_watch *watch);

/*
 Closes the watch.
 */
void tontine_watch_close(struct tontine_watch *watch);

/*
 Opens a mailbox at the address. Takes over the address if its last owner is dead. If options is
 NULL, every setting has its default. EADDRINUSE if the address has a live owner.
 */
struct tontine_mailbox *tontine_mailbox_bind(const char *at,
                                             const struct tontine_options *options);

/*
 Opens a mailbox without an address, for senders whose sockets tontine_mailbox_adopt() adds. If
 options is NULL, every setting has its default.
 */
struct tontine_mailbox *tontine_mailbox_unbound(const struct tontine_options *options);

/*
 Adds a connected SOCK_SEQPACKET socket of AF_UNIX, whose other end is passed to
 tontine_sender_from_socket(). The socket then belongs to the library, even if the call fails
 (except with EBADF or EINVAL).
 */
int tontine_mailbox_adopt(struct tontine_mailbox *mailbox,
                          int socket);

/*
 Blocks until a message has arrived, copies it into the buffer and returns its length. First
 acknowledges the previous message. EMSGSIZE if the message is longer than the buffer: the
 message is kept and received again (tontine_mailbox_next_length() returns its length).
 */
ssize_t tontine_mailbox_recv(struct tontine_mailbox *mailbox,
                             void *buffer,
                             size_t size);

/*
 Receives like tontine_mailbox_recv(), without blocking: EAGAIN if there is no message. Finds
 each message that a connected sender sent before the call. Senders that are connecting are
 accepted by a call that enters the kernel: each call while no sender is connected; otherwise one
 of the 64 calls after 5 ms have passed, and the first of them if the program calls rarely.
 tontine_mailbox_recv_timeout() with a timeout of 0 always enters the kernel.
 */
ssize_t tontine_mailbox_try_recv(struct tontine_mailbox *mailbox,
                                 void *buffer,
                                 size_t size);

/*
 Receives like tontine_mailbox_recv(), but fails with ETIMEDOUT after timeout_ms.
 */
ssize_t tontine_mailbox_recv_timeout(struct tontine_mailbox *mailbox,
                                     void *buffer,
                                     size_t size,
                                     int64_t timeout_ms);

/*
 Blocks for the first message, then passes up to max queued messages to the function receive, and
 acknowledges each when it returns. Returns their number; 0 at once if max is 0. One call costs
 less than one call per message.
 */
ssize_t tontine_mailbox_recv_batch(struct tontine_mailbox *mailbox,
                                   size_t max,
                                   tontine_receive receive,
                                   void *context);

/*
 Returns the length of the last message that was kept because the buffer was too small; ENODATA
 if no message was kept. The next message received may be a different one, from another sender.
 */
ssize_t tontine_mailbox_next_length(struct tontine_mailbox *mailbox);

/*
 Stores the process that sent the message last received. ENODATA if no message was received.
 */
int tontine_mailbox_peer(struct tontine_mailbox *mailbox,
                         struct tontine_peer *peer);

/*
 Stores the number of the lane on which the message last received arrived. No other lane of this
 mailbox has or will have that number. A process, in contrast, may have several lanes, and its id
 may be reused. ENODATA if no message was received.
 */
int tontine_mailbox_sender(struct tontine_mailbox *mailbox,
                           uint64_t *sender);

/*
 Stores the number of owners of the address that may have received the message last received
 before: 0 if it is certainly received for the first time. A message with a high count may be the
 cause of their deaths. This mailbox counts too if it has put the message back with
 tontine_mailbox_requeue(), but not if a buffer was too small. ENODATA if no message was
 received.
 */
int tontine_mailbox_redelivered(struct tontine_mailbox *mailbox,
                                uint32_t *count);

/*
 Acknowledges the message last received: if this process dies, a successor does not receive it
 again. The next receiving call also acknowledges it, whether or not it finds a message, and so
 do tontine_mailbox_arm() and tontine_mailbox_close().
 */
int tontine_mailbox_ack(struct tontine_mailbox *mailbox);

/*
 Marks the message last received as unread, if it has not been acknowledged: call this function
 before the next receiving call, tontine_mailbox_ack() and tontine_mailbox_arm(). A receiving
 call then returns the message again, perhaps after messages of other senders. If the mailbox is
 closed instead, the message stays with its sender, unread.
 */
int tontine_mailbox_requeue(struct tontine_mailbox *mailbox);

/*
 Returns the descriptor to wait on, with poll or epoll: readable when the mailbox has something
 to do. Call tontine_mailbox_arm() before each wait. If the descriptor is registered with
 EPOLLET, also poll it once after tontine_mailbox_arm() has returned 1: each call handles a
 bounded number of events, and those that are left cause no new edge.
 */
int tontine_mailbox_fd(struct tontine_mailbox *mailbox);

/*
 Prepares for waiting on the descriptor, and acknowledges the message last received. Returns 1 if
 there is nothing to receive: wait. Returns 0 if there may be a message: call
 tontine_mailbox_try_recv() until it fails with EAGAIN or ENOTCONN, then arm again.
 */
int tontine_mailbox_arm(struct tontine_mailbox *mailbox);

/*
 Returns the number of connected senders.
 */
ssize_t tontine_mailbox_sender_count(struct tontine_mailbox *mailbox);

/*
 Removes the oldest error of a lane that had to be closed, or of a peer that was refused, and
 returns it as an errno value; tontine_last_error() then returns its text. Returns 0 if there is
 no such error.
 */
int tontine_mailbox_next_error(struct tontine_mailbox *mailbox);

/*
 Removes the oldest report of a sender that died, or ended without closing its lane, after its
 messages were received; stores the number of its lane and its process, and returns 1. Returns 0
 if there is no such report. Receiving calls find the deaths, but a report does not keep the
 descriptor readable: call this function after each call that fails with EAGAIN, ETIMEDOUT or
 ENOTCONN.
 */
int tontine_mailbox_next_death(struct tontine_mailbox *mailbox,
                               uint64_t *sender,
                               struct tontine_peer *peer);

/*
 Returns 1 while the process at the other end of a lane lives, 0 once it has ended. The check is
 one load from memory, without a system call. ENODATA if the mailbox has no lane of this number
 (tontine_mailbox_sender()): it was closed, or its process has ended and its messages are read.
 */
int tontine_mailbox_is_alive(struct tontine_mailbox *mailbox,
                             uint64_t sender);

/*
 Closes the mailbox, and acknowledges the message last received: to leave that message unread,
 call tontine_mailbox_requeue() first. The calls of its senders then fail with EPIPE; the senders
 keep the messages that were not acknowledged. A sender that the mailbox had not accepted yet
 receives EOWNERDEAD if this process has ended, or if the sender was made from a socket or does
 not see this process in `/proc`. In a forked child, the call only frees the child's copy of the
 handle.
 */
void tontine_mailbox_close(struct tontine_mailbox *mailbox);

/*
 Returns a handle that ends a blocking receiving call of this mailbox. Unlike other handles, any
 number of threads may use it at the same time, also while one uses the mailbox. Close it with
 tontine_waker_close(), before or after the mailbox.
 */
struct tontine_waker *tontine_mailbox_waker(struct tontine_mailbox *mailbox);

/*
 Makes the receiving call that blocks, or else the next one that would, fail once with ECANCELED.
 Calls that do not block are not affected, and messages that are already there may be received
 first.
 */
int tontine_waker_wake(const struct tontine_waker *waker);

/*
 Closes the handle. The mailbox stays open.
 */
void tontine_waker_close(struct tontine_waker *waker);

/*
 Opens a lane to the mailbox at the address. If options is NULL, every setting has its default.
 Returns as soon as the socket is connected; the receiver accepts the connection when it next
 receives, and messages sent before that wait in the lane. ECONNREFUSED if no process has a
 mailbox at the address.
 */
struct tontine_sender *tontine_sender_connect(const char *to,
                                              const struct tontine_options *options);

/*
 Opens a lane over a connected SOCK_SEQPACKET socket of AF_UNIX, whose other end is passed to
 tontine_mailbox_adopt(). The socket then belongs to the library, even if the call fails (except
 with EBADF, EINVAL or E2BIG).
 */
struct tontine_sender *tontine_sender_from_socket(int socket,
                                                  const struct tontine_options *options);

/*
 Opens another lane to the same mailbox, with the same options, for another thread. ECONNREFUSED
 if the lane was opened over a socket.
 */
struct tontine_sender *tontine_sender_clone(struct tontine_sender *sender);

/*
 Sends a message; blocks while the lane has no free space for it. If the receiver is alive and
 awake, the call makes no system call. EOWNERDEAD if the receiver is dead, EPIPE if it has closed
 its mailbox. If the call fails, nothing was sent.
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
 Sends like tontine_sender_send(), but fails with ETIMEDOUT after timeout_ms.
 */
int tontine_sender_send_timeout(struct tontine_sender *sender,
                                const void *message,
                                size_t length,
                                int64_t timeout_ms);

/*
 Reserves space for a message of length bytes, and returns a pointer to it; blocks while the lane
 has no free space. Write the message there, then call tontine_sender_commit() or
 tontine_sender_cancel(). Until then the pointer is valid, and every other call with this sender
 except tontine_sender_close() fails with EBUSY.
 */
void *tontine_sender_reserve(struct tontine_sender *sender,
                             size_t length);

/*
 Sends the message that was written to the reserved space. ENODATA if no space is reserved. If
 the call fails, nothing was sent, and the space is released.
 */
int tontine_sender_commit(struct tontine_sender *sender);

/*
 Releases the reserved space without sending a message.
 */
int tontine_sender_cancel(struct tontine_sender *sender);

/*
 Takes back a message that the receiver did not acknowledge before it died or closed its mailbox:
 copies the message into the buffer and returns its length. Call this function until it fails
 with ENODATA: it returns the messages in the order in which they were sent. EAGAIN while the
 receiver is alive; EMSGSIZE if the message is longer than the buffer: the message is kept
 (tontine_sender_next_unread_length() returns its length).
 */
ssize_t tontine_sender_take_unread(struct tontine_sender *sender,
                                   void *buffer,
                                   size_t size);

/*
 Returns the length of the message that tontine_sender_take_unread() returns next. EAGAIN while
 the receiver is alive; ENODATA when no message is left.
 */
ssize_t tontine_sender_next_unread_length(struct tontine_sender *sender);

/*
 Returns 1 if a receiver may have processed the message that tontine_sender_take_unread() returns
 next, without acknowledging it; 0 if no receiver has processed it: it can be sent again without
 being processed twice. EAGAIN while the receiver is alive; ENODATA when no message is left.
 */
int tontine_sender_next_unread_in_doubt(struct tontine_sender *sender);

/*
 Returns the number of bytes in the lane that the receiver has not acknowledged, padding and 8
 bytes per message included.
 */
ssize_t tontine_sender_unread_bytes(struct tontine_sender *sender);

/*
 Blocks until the receiver has acknowledged every message; fails with ETIMEDOUT after timeout_ms.
 EOWNERDEAD or EPIPE if the receiver has ended and left messages unread; with one of
 TONTINE_ON_DEATH_WAIT_... the sender waits for the next owner instead. If the receiver ends
 after it has acknowledged every message, the call succeeds.
 */
int tontine_sender_wait_acked(struct tontine_sender *sender,
                              int64_t timeout_ms);

/*
 Does the lane's pending work: reads the receiver's control messages, returns memory, and looks
 for a successor. No thread does this work: call this function when the descriptor of
 tontine_sender_fd() is readable, or from time to time. EOWNERDEAD or EPIPE if the receiver has
 ended: stop waiting on the descriptor, which then stays readable.
 */
int tontine_sender_service(struct tontine_sender *sender);

/*
 Returns the descriptor to wait on, with poll or epoll: readable when tontine_sender_service()
 has something to do, such as after the receiver's end. The descriptor reports free space in the
 lane only after tontine_sender_arm(). A handover to a successor replaces the descriptor.
 */
int tontine_sender_fd(struct tontine_sender *sender);

/*
 Prepares for waiting on the descriptor until the lane has free space for a message of `length`
 bytes. Returns 1 if the lane has no free space: wait, for at most half a second, because the
 descriptor does not report every end of a receiver. Returns 0 if the lane may have free space:
 call tontine_sender_try_send(). Arm again before each wait. Fails like tontine_sender_send().
 */
int tontine_sender_arm(struct tontine_sender *sender,
                       size_t length);

/*
 Stores the receiver's process. ENODATA until the receiver has accepted the connection, and while
 this process cannot receive the answer, because it has no free descriptor or can start no thread
 (`RLIMIT_NPROC`, a cgroup's `pids.max`): calls that wait then fail with ETIMEDOUT.
 */
int tontine_sender_peer(struct tontine_sender *sender,
                        struct tontine_peer *peer);

/*
 Returns the length in bytes of the longest message that the lane's cap allows. Once the receiver
 has accepted the connection, the receiver's cap applies too.
 */
ssize_t tontine_sender_max_message_length(struct tontine_sender *sender);

/*
 Closes the lane. A live receiver still receives the messages in it.
 */
void tontine_sender_close(struct tontine_sender *sender);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TONTINE_H */
