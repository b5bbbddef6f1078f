#include "comm/store_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/limits.hpp"
#include "base/wire.hpp"
#include "comm/sockets.hpp"

namespace gradsync {
namespace {

constexpr std::string_view kMagic = "GSYFILE1";
constexpr std::size_t kWriterBytes = 20;
constexpr std::size_t kHeaderBytes = 8 + 8 + 4 + kWriterBytes;
constexpr std::size_t kRecordHeaderBytes = 9;
constexpr std::size_t kBodyBytesMax = limits::store_key_bytes_max + limits::store_value_bytes_max + 2;
constexpr std::size_t kFileBytesMax = 1u << 30;

// Polling: a file on a network has no other way to tell of changes.
class Pause {
 public:
  void operator()(Deadline deadline) {
    std::this_thread::sleep_until(std::min(deadline.when(), std::chrono::steady_clock::now() + pause_));
    pause_ = std::min(pause_ * 2, kLongest);
  }

 private:
  static constexpr Nanoseconds kLongest = std::chrono::milliseconds(50);
  Nanoseconds pause_ = std::chrono::milliseconds(1);
};

std::string named(std::string_view name, std::string_view value) {
  std::string out(2 + name.size() + value.size(), '\0');
  WireWriter wire(as_writable_bytes(out));
  wire.u16(static_cast<std::uint16_t>(name.size()));
  wire.bytes(name);
  wire.bytes(value);
  return out;
}

Status write_all(int file, std::string_view bytes, std::size_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return failure(ErrorCode::unavailable, "cannot write: {}", errno_text(errno));
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::size_t>(written);
  }
  return {};
}

}  // namespace

bool FileStore::Writer::alive_here() const {
  return boot != 0 && boot == boot_identity() && process != 0 &&
         process_identity(static_cast<int>(process_id)) == process;
}

Result<std::unique_ptr<FileStore>> FileStore::open(const std::string& path, const StoreIdentity& identity,
                                                   std::function<void(std::uint64_t)> entered, Deadline deadline) {
  std::unique_ptr<FileStore> store(new FileStore(path, identity, std::move(entered)));
  if (Status status = store->enter(deadline); !status) return status;
  return store;
}

Status FileStore::lock(Deadline deadline, Descriptor& file) {
  for (Pause pause;; pause(deadline)) {
    file.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!file) return failure(ErrorCode::unavailable, "cannot open: {}", errno_text(errno));
    struct stat ours {
    }, named_now{};
    if (::fstat(file.get(), &ours) != 0 || !S_ISREG(ours.st_mode))
      return failure(ErrorCode::unavailable, "not a regular file");
    if (ours.st_uid != ::geteuid()) return failure(ErrorCode::unavailable, "it belongs to another user");
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      const bool current = ::stat(path_.c_str(), &named_now) == 0 && named_now.st_ino == ours.st_ino;
      if (current) {
        if (inode_ != ours.st_ino) log_ = {}, inode_ = ours.st_ino;
        return refresh(file.get());
      }
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      return failure(ErrorCode::unavailable, "cannot lock: {}", errno_text(errno));
    }
    if (deadline.passed()) return failure(ErrorCode::timeout, "the file's lock was not free");
  }
}

Status FileStore::refresh(int file) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return failure(ErrorCode::unavailable, "cannot read: {}", errno_text(errno));
  const auto bytes_total = static_cast<std::size_t>(info.st_size);
  if (bytes_total > kFileBytesMax)
    return failure(ErrorCode::protocol, "the file has {} bytes, at most {} are possible", bytes_total, kFileBytesMax);
  std::string header(std::min(kHeaderBytes, bytes_total), '\0');
  if (::pread(file, header.data(), header.size(), 0) != static_cast<ssize_t>(header.size()))
    return failure(ErrorCode::unavailable, "cannot read: {}", errno_text(errno));
  if (!header.empty() && header.substr(0, kMagic.size()) != kMagic.substr(0, header.size()))
    return failure(ErrorCode::protocol, "not a file of gradsync (it begins with other bytes)");
  if (!read_header(header)) return {};
  std::string rest(bytes_total - std::min(bytes_total, log_.read), '\0');
  const ssize_t got = ::pread(file, rest.data(), rest.size(), static_cast<off_t>(log_.read));
  if (got < 0) return failure(ErrorCode::unavailable, "cannot read: {}", errno_text(errno));
  std::string_view unread(rest.data(), static_cast<std::size_t>(got));
  for (std::size_t before = log_.read; read_record(unread); before = log_.read)
    unread.remove_prefix(log_.read - before);
  return {};
}

// False: there is no whole header yet. A new run's header replaces all that was known.
bool FileStore::read_header(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes) return log_ = {}, false;
  WireReader wire(as_bytes(bytes.substr(kMagic.size())));
  Log fresh;
  fresh.run = wire.u64();
  fresh.size = wire.u32();
  fresh.first.boot = wire.u64();
  fresh.first.process_id = wire.u32();
  fresh.first.process = wire.u64();
  fresh.read = kHeaderBytes;
  fresh.entered[0] = fresh.first;
  if (fresh.run != log_.run) log_ = std::move(fresh);
  return true;
}

bool FileStore::read_record(std::string_view bytes) {
  WireReader wire(as_bytes(bytes));
  const std::size_t body_bytes = wire.u32();
  const auto type = static_cast<Type>(wire.u8());
  const std::uint32_t rank = wire.u32();
  if (!wire.ok() || body_bytes > kBodyBytesMax || wire.left() < body_bytes) return false;
  note(type, rank, bytes.substr(kRecordHeaderBytes, body_bytes));
  log_.read += kRecordHeaderBytes + body_bytes;
  return true;
}

void FileStore::note(Type type, std::uint32_t rank, std::string_view body) {
  if (rank >= log_.size) return;
  WireReader wire(as_bytes(body));
  if (type == Type::enter) {
    log_.entered.try_emplace(rank, Writer{wire.u64(), wire.u32(), wire.u64()});
  } else if (type == Type::done) {
    log_.done.insert(rank);
  } else if (type == Type::fail) {
    if (!log_.failed) log_.failed.emplace(rank, std::string(body));
  } else {
    const std::string name = wire.bytes(wire.u16());
    if (!wire.ok()) return;
    if (type == Type::gather) log_.gathers[name].try_emplace(rank, wire.bytes(wire.left()));
    else if (type == Type::value) log_.values[name] = wire.bytes(wire.left());
    else if (type == Type::confirm && rank == 0) log_.confirmed.insert(name);
  }
}

Status FileStore::append(int file, Type type, std::string_view body) {
  std::string record(kRecordHeaderBytes, '\0');
  WireWriter wire(as_writable_bytes(record));
  wire.u32(static_cast<std::uint32_t>(body.size()));
  wire.u8(static_cast<std::uint8_t>(type));
  wire.u32(identity_.rank);
  record.append(body);
  // Behind the last whole record: what a killed writer left half done is overwritten.
  if (Status written = write_all(file, record, log_.read); !written) return written;
  if (::ftruncate(file, static_cast<off_t>(log_.read + record.size())) != 0)
    return failure(ErrorCode::unavailable, "cannot write: {}", errno_text(errno));
  return refresh(file);
}

Status FileStore::start_run(int file) {
  const bool over = log_.run != 0 && log_.done.size() == log_.size;
  if (log_.run != 0 && !over && log_.first.process != identity_.process && log_.first.alive_here())
    return failure(ErrorCode::invalid_argument, "rank 0 is already taken by process {} of this host",
                   log_.first.process_id);
  run_ = random_number() | 1;
  std::string header(kHeaderBytes, '\0');
  WireWriter wire(as_writable_bytes(header));
  wire.bytes(kMagic);
  wire.u64(run_);
  wire.u32(identity_.size);
  wire.u64(boot_identity());
  wire.u32(static_cast<std::uint32_t>(::getpid()));
  wire.u64(identity_.process);
  if (::ftruncate(file, 0) != 0) return failure(ErrorCode::unavailable, "cannot write: {}", errno_text(errno));
  if (Status written = write_all(file, header, 0); !written) return written;
  return refresh(file);
}

// Enters the run in the file unless it cannot be ours; then `doubt_` says why, in case it stays so.
Status FileStore::enter_run(int file, bool& inside) {
  doubt_ = failure(ErrorCode::timeout, "rank 0 has not arrived, the others wait for it first");
  if (log_.run == 0) return {};
  const bool certain = log_.first.alive_here();  // not a leftover
  if (log_.size != identity_.size) {
    doubt_ = failure(ErrorCode::invalid_argument, "ranks disagree on the world size: rank {} says {}, rank 0 says {}",
                     identity_.rank, identity_.size, log_.size);
    if (!certain) return {};
    (void)append(file, Type::fail, doubt_.message);
    return doubt_;
  }
  if (const auto found = log_.entered.find(identity_.rank); found != log_.entered.end()) {
    doubt_ = failure(ErrorCode::invalid_argument, "rank {} is already taken by process {}", identity_.rank,
                     found->second.process_id);
    return certain && found->second.process != identity_.process && found->second.alive_here() ? doubt_ : Status{};
  }
  std::string body(kWriterBytes, '\0');
  WireWriter wire(as_writable_bytes(body));
  wire.u64(boot_identity());
  wire.u32(static_cast<std::uint32_t>(::getpid()));
  wire.u64(identity_.process);
  run_ = log_.run;
  inside = true;
  return append(file, Type::enter, body);
}

Status FileStore::enter(Deadline deadline) {
  for (Pause pause;; pause(deadline)) {
    Descriptor file;
    bool inside = identity_.rank == 0;
    if (Status locked = lock(deadline, file); !locked)
      return locked.code == ErrorCode::timeout && !doubt_ ? doubt_ : locked;
    if (Status status = inside ? start_run(file.get()) : enter_run(file.get(), inside); !status) return status;
    if (inside) return entered_(run_), Status{};
    if (deadline.passed()) return doubt_;
  }
}

Status FileStore::check_failed() const {
  if (!log_.failed) return {};
  return peer_failure(ErrorCode::peer_lost, static_cast<int>(log_.failed->first), "rank {} left the rendezvous: {}",
                      log_.failed->first, log_.failed->second);
}

// One look at the file: brings the blob, confirms as rank 0, and is finished once rank 0 has confirmed.
Status FileStore::take_part(const std::string& name, const std::string& blob, Deadline deadline, bool& finished) {
  Descriptor file;
  if (Status locked = lock(deadline, file); !locked) return locked;
  if (log_.run != run_) {
    if (identity_.rank == 0) return failure(ErrorCode::invalid_argument, "another worker has taken rank 0");
    bool inside = false;
    Status status = enter_run(file.get(), inside);
    if (inside) entered_(run_);
    if (!status || !inside) return status;
  }
  if (Status failed = check_failed(); !failed) return failed;
  if (!log_.gathers[name].contains(identity_.rank))
    if (Status status = append(file.get(), Type::gather, named(name, blob)); !status) return status;
  if (log_.gathers[name].size() < identity_.size) return {};
  if (identity_.rank == 0 && !log_.confirmed.contains(name))
    if (Status status = append(file.get(), Type::confirm, named(name, {})); !status) return status;
  finished = log_.confirmed.contains(name);
  return {};
}

Result<std::vector<std::string>> FileStore::gather(const std::string& name, const std::string& blob,
                                                   Deadline deadline) {
  for (Pause pause;; pause(deadline)) {
    bool finished = false;
    // Only the lock can run out of time in there; what was read before says more.
    if (Status status = take_part(name, blob, deadline, finished); !status)
      return status.code == ErrorCode::timeout ? missing(name) : status;
    if (finished) break;
    if (deadline.passed()) return missing(name);
  }
  std::vector<std::string> blobs;
  for (auto& [rank, brought] : log_.gathers[name]) blobs.push_back(std::move(brought));
  return blobs;
}

Status FileStore::missing(const std::string& name) const {
  if (log_.run != run_) return doubt_;
  std::vector<bool> here(identity_.size, false);
  if (log_.entered.size() < identity_.size) {
    for (const auto& [rank, writer] : log_.entered) here[rank] = true;
  } else if (const auto found = log_.gathers.find(name); found != log_.gathers.end()) {
    for (const auto& [rank, blob] : found->second) here[rank] = true;
  }
  const auto first = std::find(here.begin(), here.end(), false);
  const int peer = first == here.end() ? 0 : static_cast<int>(first - here.begin());
  return peer_failure(ErrorCode::timeout, peer, "{}{}", arrival_text(here),
                      first == here.end() ? ", rank 0 did not confirm it" : "");
}

Status FileStore::put(const std::string& name, const std::string& value, Deadline deadline) {
  Descriptor file;
  if (Status locked = lock(deadline, file); !locked) return locked;
  return append(file.get(), Type::value, named(name, value));
}

Result<std::string> FileStore::get(const std::string& name, Deadline deadline) {
  for (Pause pause;; pause(deadline)) {
    Descriptor file;
    if (Status locked = lock(deadline, file); !locked) return locked;
    if (Status failed = check_failed(); !failed) return failed;
    if (const auto found = log_.values.find(name); found != log_.values.end()) return found->second;
    if (deadline.passed()) return failure(ErrorCode::timeout, "nobody has put {}", name);
  }
}

// Rank 0 stays until all have read, for its next run would empty the file.
Status FileStore::settle(Deadline deadline) {
  for (Pause pause;; pause(deadline)) {
    Descriptor file;
    if (::access(path_.c_str(), F_OK) != 0) return {};
    if (Status locked = lock(deadline, file); !locked) return locked;
    if (log_.run != run_) {
      if (log_.run == 0 && log_.read == 0) ::unlink(path_.c_str());  // made by our own look
      return {};
    }
    if (!log_.done.contains(identity_.rank))
      if (Status status = append(file.get(), Type::done, {}); !status) return status;
    if (log_.done.size() == log_.size) return ::unlink(path_.c_str()), Status{};
    if (identity_.rank != 0) return {};
    if (Status failed = check_failed(); !failed) return failed;
    if (deadline.passed())
      return failure(ErrorCode::timeout, "{} of {} ranks have finished the rendezvous", log_.done.size(), log_.size);
  }
}

void FileStore::fail(const std::string& why) {
  Descriptor file;
  if (lock(Deadline::after(std::chrono::milliseconds(200)), file) && log_.run == run_)
    (void)append(file.get(), Type::fail, why.substr(0, limits::notice_bytes_max));
}

}  // namespace gradsync
