// Boost.Interprocess's managed_shared_memory as five C functions, which the workers of the
// experiment `shared-heaps` call. The creator of the heap forks them, so that all have it at the
// same address.

#include <boost/interprocess/managed_shared_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>

namespace ipc = boost::interprocess;

extern "C" {

// Creates a heap of `bytes` bytes under this name, which is removed before the return; null if
// refused.
void *tontine_boost_create(const char *name, std::size_t bytes) {
  try {
    auto *heap = new ipc::managed_shared_memory(ipc::create_only, name, bytes);
    ipc::shared_memory_object::remove(name);
    return heap;
  } catch (const std::exception &) {
    ipc::shared_memory_object::remove(name);
    return nullptr;
  }
}

// Returns null if there is no memory left.
void *tontine_boost_allocate(void *heap, std::size_t bytes) {
  return static_cast<ipc::managed_shared_memory *>(heap)->allocate(bytes, std::nothrow);
}

void tontine_boost_free(void *heap, void *block) {
  static_cast<ipc::managed_shared_memory *>(heap)->deallocate(block);
}

// Returns a number that identifies a block in all processes.
std::uint64_t tontine_boost_handle(void *heap, void *block) {
  return static_cast<std::uint64_t>(
      static_cast<ipc::managed_shared_memory *>(heap)->get_handle_from_address(block));
}

void *tontine_boost_address(void *heap, std::uint64_t handle) {
  using number = ipc::managed_shared_memory::handle_t;
  return static_cast<ipc::managed_shared_memory *>(heap)->get_address_from_handle(
      static_cast<number>(handle));
}

}
