// A worker of the crash explorer that has one end of a Boost.Interprocess message_queue.
//
// Reads one command per line from standard input and writes one reply per line to standard output,
// as `actor/order.rs` of `tontine-crash` defines them; a marked command is framed by two breakpoint
// instructions.

#include <boost/date_time/posix_time/posix_time.hpp>
#include <boost/interprocess/ipc/message_queue.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

namespace ipc = boost::interprocess;
namespace clk = boost::posix_time;

namespace {

constexpr std::size_t length = 64;
constexpr std::size_t words = length / sizeof(std::uint64_t);
constexpr std::size_t capacity = 4;
constexpr std::uint64_t factor = 0x9E3779B97F4A7C15;

struct message {
  std::uint64_t word[words];
};

message numbered(std::uint32_t number) {
  message made{};
  std::uint64_t word = std::uint64_t{number} + 1;
  for (auto &place : made.word) {
    place = word;
    word *= factor;
  }
  return made;
}

std::string seen(const message &got, std::size_t size) {
  const std::uint64_t number = got.word[0] - 1;
  if (size != length || number > UINT32_MAX)
    return " torn";
  const message whole = numbered(static_cast<std::uint32_t>(number));
  if (std::memcmp(&whole, &got, length) != 0)
    return " torn";
  return " " + std::to_string(number);
}

inline void mark(bool marked) {
  if (marked)
    asm volatile("int3" ::: "memory");
}

using queue = std::unique_ptr<ipc::message_queue>;

std::string drain(ipc::message_queue &from, std::uint32_t until, long quiet_ms) {
  std::string all;
  const std::string last = " " + std::to_string(until);
  bool came = false;
  for (;;) {
    message got{};
    std::size_t size = 0;
    unsigned priority = 0;
    const auto deadline = clk::microsec_clock::universal_time() + clk::milliseconds(quiet_ms);
    if (from.timed_receive(&got, length, size, priority, deadline)) {
      const std::string one = seen(got, size);
      all += one;
      came = came || one == last;
    } else if (came) {
      return all;
    }
  }
}

std::string obey(queue &end, const char *name, bool marked, std::istream &order) {
  std::string what;
  order >> what;
  if (what == "create") {
    ipc::message_queue made(ipc::create_only, name, capacity, length);
    return "";
  }
  if (what == "open") {
    mark(marked);
    end = std::make_unique<ipc::message_queue>(ipc::open_only, name);
    mark(marked);
    return "";
  }
  if (what == "close") {
    mark(marked);
    end.reset();
    mark(marked);
    return "";
  }
  if (what == "unread")
    return "";
  if (!end)
    throw std::runtime_error("this end is not open");
  if (what == "send") {
    std::uint32_t number = 0;
    order >> number;
    const message made = numbered(number);
    mark(marked);
    end->send(&made, length, 0);
    mark(marked);
    return "";
  }
  if (what == "receive") {
    message got{};
    std::size_t size = 0;
    unsigned priority = 0;
    mark(marked);
    end->receive(&got, length, size, priority);
    mark(marked);
    return seen(got, size);
  }
  if (what == "drain") {
    std::uint32_t until = 0;
    long quiet_ms = 0;
    order >> until >> quiet_ms;
    return drain(*end, until, quiet_ms);
  }
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
  queue end;
  std::string line;
  while (std::getline(std::cin, line)) {
    const std::string word = "marked ";
    const bool marked = line.compare(0, word.size(), word) == 0;
    std::istringstream order(marked ? line.substr(word.size()) : line);
    try {
      std::cout << "done" << obey(end, name, marked, order) << std::endl;
    } catch (const std::exception &error) {
      std::cout << "refused " << error.what() << std::endl;
    }
  }
  return 0;
}
