// A worker of the crash explorer that allocates from a Boost.Interprocess managed_shared_memory.
//
// Reads one command per line from standard input and writes one reply per line to standard output,
// as `actor/order.rs` of `tontine-crash` defines them; a marked command is framed by two breakpoint
// instructions. Each block is filled with the messages of `src/message.rs`.

#include <boost/interprocess/managed_shared_memory.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <vector>

namespace ipc = boost::interprocess;

namespace {

constexpr std::size_t length = 64;
constexpr std::size_t segment = 576 << 10;
constexpr std::uint64_t factor = 0x9E3779B97F4A7C15;

struct block {
  std::uint32_t number;
  unsigned char *at;
  std::size_t bytes;
};

struct member {
  std::unique_ptr<ipc::managed_shared_memory> memory;
  std::vector<block> kept;
  // Free memory of the empty heap.
  std::size_t empty = 0;
};

void numbered(unsigned char *into, std::uint32_t number) {
  std::uint64_t word = std::uint64_t{number} + 1;
  for (std::size_t at = 0; at < length; at += sizeof word, word *= factor)
    std::memcpy(into + at, &word, sizeof word);
}

void fill(const block &one) {
  for (std::size_t at = 0; at < one.bytes; at += length)
    numbered(one.at + at, one.number);
}

bool is_whole(const block &one) {
  unsigned char expected[length];
  numbered(expected, one.number);
  for (std::size_t at = 0; at < one.bytes; at += length)
    if (std::memcmp(one.at + at, expected, length) != 0)
      return false;
  return true;
}

inline void mark(bool marked) {
  if (marked)
    asm volatile("int3" ::: "memory");
}

// Returns false if there is no space.
bool allocate(member &self, std::uint32_t number, std::size_t bytes, bool marked) {
  mark(marked);
  void *at = self.memory->allocate(bytes, std::nothrow);
  mark(marked);
  if (!at)
    return false;
  self.kept.push_back({number, static_cast<unsigned char *>(at), bytes});
  fill(self.kept.back());
  return true;
}

std::string word(std::size_t number) { return " " + std::to_string(number); }

std::string obey(member &self, const char *name, bool marked, std::istream &order) {
  std::string what, all;
  order >> what;
  if (what == "create") {
    self.memory =
        std::make_unique<ipc::managed_shared_memory>(ipc::create_only, name, segment);
    self.empty = self.memory->get_free_memory();
    return "done";
  }
  if (what == "join") {
    mark(marked);
    self.memory = std::make_unique<ipc::managed_shared_memory>(ipc::open_only, name);
    mark(marked);
    return "done";
  }
  if (what == "close") {
    mark(marked);
    self.memory.reset();
    mark(marked);
    return "done";
  }
  if (!self.memory)
    throw std::runtime_error("this worker is not a member");
  if (what == "allocate") {
    std::uint32_t number = 0;
    std::size_t bytes = 0;
    order >> number >> bytes;
    if (!allocate(self, number, bytes, marked))
      throw std::runtime_error("there is no space for " + std::to_string(bytes) + " bytes");
    return "done";
  }
  if (what == "fill") {
    std::uint32_t number = 0;
    std::size_t bytes = 0;
    order >> number >> bytes;
    for (; allocate(self, number, bytes, false); ++number)
      all += word(number);
    return "done" + all;
  }
  if (what == "free") {
    std::uint32_t number = 0;
    order >> number;
    for (auto one = self.kept.begin(); one != self.kept.end(); ++one) {
      if (one->number != number)
        continue;
      void *at = one->at;
      self.kept.erase(one);
      mark(marked);
      self.memory->deallocate(at);
      mark(marked);
      return "done";
    }
    throw std::runtime_error("there is no such block");
  }
  if (what == "empty") {
    for (; !self.kept.empty(); self.kept.pop_back())
      self.memory->deallocate(self.kept.back().at);
    return "done";
  }
  if (what == "look") {
    for (const block &one : self.kept) {
      if (!is_whole(one))
        return "faulty a live member's block" + word(one.number) + " holds something else";
      all += word(one.number);
    }
    return "done" + all;
  }
  if (what == "check") {
    if (!self.memory->check_sanity())
      return "faulty check_sanity";
    // Only the creator of the heap gets this command.
    return "done" + word(self.empty - self.memory->get_free_memory()) + word(0);
  }
  if (what == "tend")
    return "done";
  throw std::runtime_error("expected a command, found " + what);
}

} // namespace

// The arguments are the target's name, which is known, and the directory whose last part is the
// name.
int main(int count, char **arguments) {
  if (count != 3)
    return 2;
  const char *slash = std::strrchr(arguments[2], '/');
  const char *name = slash ? slash + 1 : arguments[2];
  member self;
  self.kept.reserve(64);
  std::string line;
  while (std::getline(std::cin, line)) {
    const std::string word = "marked ";
    const bool marked = line.compare(0, word.size(), word) == 0;
    std::istringstream order(marked ? line.substr(word.size()) : line);
    try {
      std::cout << obey(self, name, marked, order) << std::endl;
    } catch (const std::exception &error) {
      std::cout << "refused " << error.what() << std::endl;
    }
  }
  return 0;
}
