#include "comm/pmi.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "comm/sockets.hpp"

namespace gradsync {
namespace {
constexpr std::size_t kLineBytesMax = 4096;
}

std::map<std::string, std::string> parse_pmi_line(const std::string& line) {
  std::map<std::string, std::string> fields;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    const std::string word = line.substr(at, end - at);
    if (const auto equals = word.find('='); equals != std::string::npos)
      fields[word.substr(0, equals)] = word.substr(equals + 1);
    at = end + 1;
  }
  return fields;
}

Result<PmiClient> PmiClient::connect(const std::string& host, std::uint16_t port, const std::string& id,
                                     Deadline deadline) {
  const auto addresses = resolve(host, port, deadline);
  if (!addresses) return addresses.status();
  Status last;
  for (const Address& address : *addresses) {
    auto socket = connect_tcp(address);
    last = socket.status();
    if (socket && !poll_one(socket->get(), POLLOUT, deadline))
      last = failure(ErrorCode::timeout, "PMI at {}: no answer", text(address));
    else if (socket) last = connect_outcome(socket->get());
    if (!last) continue;
    PmiClient client(socket->get());
    client.owned_ = std::move(*socket);
    const auto answer = client.ask(fmt::format("cmd=initack pmiid={}\n", id), "initack", deadline);
    if (!answer) return answer.status();
    return client;
  }
  return last;
}

// One line out, one line in. Byte by byte: what follows the line belongs to whoever uses the descriptor next.
Result<PmiClient::Fields> PmiClient::ask(const std::string& line, const std::string& answer, Deadline deadline) {
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t wrote = ::send(descriptor_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (wrote > 0) sent += static_cast<std::size_t>(wrote);
    else if (errno == EAGAIN && !poll_one(descriptor_, POLLOUT, deadline))
      return failure(ErrorCode::timeout, "PMI: the launcher does not read");
    else if (errno != EAGAIN && errno != EINTR)
      return failure(ErrorCode::unavailable,
                     "PMI: {} (it serves one start of MPI or gradsync; set GRADSYNC_RENDEZVOUS for more)",
                     errno_text(errno));
  }
  std::string heard;
  while (heard.size() < kLineBytesMax) {
    if (!poll_one(descriptor_, POLLIN, deadline))
      return failure(ErrorCode::timeout, "PMI: no answer to {}", line.substr(0, line.find(' ')));
    char c = 0;
    const ssize_t got = ::read(descriptor_, &c, 1);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0)
      return failure(ErrorCode::unavailable,
                     "PMI: the launcher closed the connection (it serves one start of MPI or gradsync; set "
                     "GRADSYNC_RENDEZVOUS for more)");
    if (c != '\n') {
      heard += c;
      continue;
    }
    Fields fields = parse_pmi_line(heard);
    if (fields["cmd"] == answer) return fields;
    if (fields["cmd"] != "set")
      return failure(ErrorCode::protocol, "PMI: the launcher answered \"{}\", expected cmd={}", heard, answer);
    heard.clear();  // PMI_PORT launchers tell size and rank on their own
  }
  return failure(ErrorCode::protocol, "PMI: an answer beyond {} bytes", kLineBytesMax);
}

Status PmiClient::start(Deadline deadline) {
  auto fields = ask("cmd=get_my_kvsname\n", "my_kvsname", deadline);
  if (!fields) return fields.status();
  space_ = (*fields)["kvsname"];
  return space_.empty() ? failure(ErrorCode::protocol, "PMI: the launcher names no key space") : Status{};
}

Status PmiClient::put(const std::string& key, const std::string& value, Deadline deadline) {
  auto fields = ask(fmt::format("cmd=put kvsname={} key={} value={}\n", space_, key, value), "put_result", deadline);
  if (!fields) return fields.status();
  return (*fields)["rc"] == "0" ? Status{} : failure(ErrorCode::unavailable, "PMI: put {}: {}", key, (*fields)["msg"]);
}

Result<std::string> PmiClient::get(const std::string& key, Deadline deadline) {
  auto fields = ask(fmt::format("cmd=get kvsname={} key={}\n", space_, key), "get_result", deadline);
  if (!fields) return fields.status();
  return (*fields)["rc"] == "0" ? (*fields)["value"] : std::string();
}

Status PmiClient::finish(Deadline deadline) {
  const auto fields = ask("cmd=finalize\n", "finalize_ack", deadline);
  return fields ? Status{} : fields.status();
}

Status PmiClient::barrier(Deadline deadline) {
  const auto fields = ask("cmd=barrier_in\n", "barrier_out", deadline);
  return fields ? Status{} : fields.status();
}

}  // namespace gradsync
