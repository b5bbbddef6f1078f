#include "comm/probe.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "base/wire.hpp"
#include "comm/handshake.hpp"
#include "comm/sockets.hpp"

namespace gradsync {
namespace {

constexpr std::size_t kProbeBytes = 4096;  // of the memory: [0] our nonce, [1] the other's

// Mapped memory of a probe, as two atomic words.
class ProbeMemory {
 public:
  explicit ProbeMemory(int memory)
      : address_(::mmap(nullptr, kProbeBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0)) {}
  ~ProbeMemory() {
    if (mapped()) ::munmap(address_, kProbeBytes);
  }
  ProbeMemory(const ProbeMemory&) = delete;
  ProbeMemory& operator=(const ProbeMemory&) = delete;
  bool mapped() const { return address_ != MAP_FAILED; }
  std::atomic_ref<std::uint64_t> word(std::size_t i) {
    return std::atomic_ref(static_cast<std::uint64_t*>(address_)[i]);
  }

 private:
  void* address_;
};

std::string encode_word(std::uint64_t value) {
  std::string out(8, '\0');
  WireWriter wire({reinterpret_cast<std::byte*>(out.data()), out.size()});
  wire.u64(value);
  return out;
}

Result<Descriptor> sealed_memory() {
  Descriptor memory(::memfd_create("gradsync-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ::ftruncate(memory.get(), kProbeBytes) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return failure(ErrorCode::unavailable, "no shared memory: {}", errno_text(errno));
  return memory;
}

// Memory that cannot shrink under us, so that a mapping never faults.
bool fit_to_map(int memory) {
  struct stat info {};
  const int seals = memory < 0 ? -1 : ::fcntl(memory, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && ::fstat(memory, &info) == 0 &&
         info.st_size >= static_cast<off_t>(kProbeBytes);
}

}  // namespace

Status probe_host(const ProbeTarget& target, Deadline deadline) {
  auto memory = sealed_memory();
  if (!memory) return memory.status();
  ProbeMemory mapped(memory->get());
  if (!mapped.mapped()) return failure(ErrorCode::unavailable, "cannot map shared memory: {}", errno_text(errno));
  const std::uint64_t nonce = random_number();
  mapped.word(0).store(nonce);
  auto socket = connect_abstract(target.unix_name, deadline);
  if (!socket) return socket.status();
  if (!peer_is_our_user(socket->get())) return failure(ErrorCode::unavailable, "the peer runs under another user");
  const Hello hello{
      .kind = HelloKind::probe, .job = target.job, .from = target.from, .to = target.to, .payload_bytes = 8};
  if (Status sent = send_all(socket->get(), encode(hello) + encode_word(nonce), deadline, memory->get()); !sent)
    return sent;
  std::array<std::byte, 8> answer{};
  if (Status got = receive_all(socket->get(), answer, deadline); !got) return got;
  if (WireReader(answer).u64() != mapped.word(1).load())
    return failure(ErrorCode::unavailable, "what rank {} wrote into shared memory is not seen here", target.to);
  return {};
}

bool answer_probe(int socket, int memory, std::span<const std::byte> payload) {
  if (payload.size() != 8 || !fit_to_map(memory)) return false;
  ProbeMemory mapped(memory);
  if (!mapped.mapped() || mapped.word(0).load() != WireReader(payload).u64()) return false;
  const std::uint64_t answer = random_number();
  mapped.word(1).store(answer);
  return ::send(socket, encode_word(answer).data(), 8, MSG_NOSIGNAL | MSG_DONTWAIT) == 8;
}

}  // namespace gradsync
