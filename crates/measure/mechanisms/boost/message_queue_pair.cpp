// Boost.Interprocess's message_queue and file_lock as C functions, which the ends of
// `boost-message-queue` and `boost-message-queue-monitored` call. The creator of a queue forks the
// processes that use it. A timeout is in milliseconds; a negative one means to wait indefinitely.

#include <boost/date_time/posix_time/posix_time.hpp>
#include <boost/interprocess/ipc/message_queue.hpp>
#include <boost/interprocess/sync/file_lock.hpp>

#include <cstddef>
#include <exception>

namespace ipc = boost::interprocess;
namespace clk = boost::posix_time;

namespace {

enum outcome { done = 0, timed_out = 1, failed = -1 };

clk::ptime after(long timeout_ms) {
  if (timeout_ms < 0)
    return clk::ptime(clk::pos_infin);
  return clk::microsec_clock::universal_time() + clk::milliseconds(timeout_ms);
}

template <class Call> int outcome_of(Call call) {
  try {
    return call() ? done : timed_out;
  } catch (const ipc::interprocess_exception &error) {
    return error.get_error_code() == ipc::timeout_when_locking_error ? timed_out : failed;
  } catch (const std::exception &) {
    return failed;
  }
}

ipc::file_lock &lock_of(void *lock) { return *static_cast<ipc::file_lock *>(lock); }

} // namespace

extern "C" {

// Creates a queue under this name, which is removed before the return; null if refused.
void *tontine_boost_queue_create(const char *name, std::size_t capacity, std::size_t bytes) {
  try {
    auto *queue = new ipc::message_queue(ipc::create_only, name, capacity, bytes);
    ipc::shared_memory_object::remove(name);
    return queue;
  } catch (const std::exception &) {
    ipc::shared_memory_object::remove(name);
    return nullptr;
  }
}

int tontine_boost_queue_send(void *queue, const void *message, std::size_t bytes, long timeout_ms) {
  return outcome_of([&] {
    const auto until = after(timeout_ms);
    return static_cast<ipc::message_queue *>(queue)->timed_send(message, bytes, 0, until);
  });
}

int tontine_boost_queue_receive(void *queue, void *into, std::size_t bytes, long timeout_ms) {
  return outcome_of([&] {
    std::size_t length = 0;
    unsigned priority = 0;
    auto *from = static_cast<ipc::message_queue *>(queue);
    return from->timed_receive(into, bytes, length, priority, after(timeout_ms));
  });
}

// Opens the lock of an existing file; null if refused.
void *tontine_boost_lock_open(const char *path) {
  try {
    return new ipc::file_lock(path);
  } catch (const std::exception &) {
    return nullptr;
  }
}

// Acquires the lock until the process ends.
int tontine_boost_lock_hold(void *lock) {
  return outcome_of([&] {
    lock_of(lock).lock();
    return true;
  });
}

// Done if no process holds the lock, timed out if one does.
int tontine_boost_lock_is_free(void *lock) {
  return outcome_of([&] {
    const bool acquired = lock_of(lock).try_lock();
    if (acquired)
      lock_of(lock).unlock();
    return acquired;
  });
}
}
