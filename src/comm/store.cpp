#include "comm/store.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/random.hpp"

namespace gradsync {
namespace {

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = text.size();
  for (char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::uint64_t inode(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 ? info.st_ino : 0;
}

// Field `number` of /proc/PID/stat, counted from 1; empty if there is no such process. The name in field 2 may hold
// blanks, so fields are counted from its bracket.
std::string stat_field(int process_id, int number) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", process_id).c_str());
  std::size_t at = line.rfind(')');
  for (int field = 2; field < number && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  return at == std::string::npos ? std::string() : line.substr(at + 1, line.find(' ', at + 1) - at - 1);
}

}  // namespace

std::uint64_t boot_identity() {
  const std::string line = first_line("/proc/sys/kernel/random/boot_id");
  return line.empty() ? 0 : hash_text(line);
}

std::uint64_t network_identity() { return inode("/proc/thread-self/ns/net"); }

std::uint64_t process_identity() { return process_identity(::getpid()); }

std::uint64_t process_identity(int process_id) {
  const std::string start = stat_field(process_id, 22);  // in clock ticks after the boot
  if (start.empty()) return 0;
  return mix64(boot_identity() ^
               mix64(inode("/proc/self/ns/pid") ^ mix64(static_cast<std::uint64_t>(process_id) ^ hash_text(start))));
}

std::uint64_t ancestor_identity(const std::string& name) {
  constexpr int kGenerationsMax = 64;
  int process = ::getpid();
  for (int generation = 0; generation < kGenerationsMax && process > 1; ++generation) {
    if (first_line(fmt::format("/proc/{}/comm", process).c_str()) == name) return process_identity(process);
    process = std::atoi(stat_field(process, 4).c_str());
  }
  return 0;
}

std::string arrival_text(const std::vector<bool>& arrived) {
  constexpr std::size_t kListed = 8;
  std::string missing;
  std::size_t count = 0;
  for (std::size_t rank = 0; rank < arrived.size(); ++rank) {
    if (arrived[rank]) continue;
    if (count < kListed) missing += fmt::format("{}{}", count ? ", " : "", rank);
    ++count;
  }
  const std::size_t present = arrived.size() - count;
  if (count == 0) return fmt::format("all {} ranks arrived", arrived.size());
  const std::string more = count > kListed ? fmt::format(" and {} more", count - kListed) : std::string();
  return fmt::format("{} of {} ranks arrived; missing rank{} {}{}", present, arrived.size(), count > 1 ? "s" : "",
                     missing, more);
}

}  // namespace gradsync
