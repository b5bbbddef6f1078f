#include "comm/store_client.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "comm/sockets.hpp"

namespace gradsync {

using namespace store_protocol;

namespace {

constexpr std::size_t kReadBytes = 64u << 10;
constexpr std::size_t kQuotedMax = 60;  // of a foreign server's answer
constexpr auto kLastWords = std::chrono::milliseconds(200);
// Time kept at the end of a wait to ask the store who is missing.
constexpr auto kAskBefore = std::chrono::milliseconds(200);

// The first line of what somebody else answered, made printable.
std::string first_line(std::string_view bytes) {
  std::string out;
  for (char c : bytes) {
    if (c == '\n' || c == '\r' || out.size() >= kQuotedMax) break;
    out += c >= ' ' && c <= '~' ? c : '.';
  }
  return out;
}

Deadline before(Deadline deadline, Nanoseconds margin) {
  const auto left = deadline.when() - std::chrono::steady_clock::now();
  return Deadline::at(deadline.when() - std::min<Nanoseconds>(margin, std::max<Nanoseconds>(left, Nanoseconds(0)) / 4));
}

}  // namespace

std::string text(const StoreTarget& target) {
  return target.tcp ? text(*target.tcp) : fmt::format("abstract UNIX socket {}", target.unix_name);
}

StoreClient::StoreClient(Descriptor socket, const StoreIdentity& identity)
    : socket_(std::move(socket)),
      identity_(identity) {}

StoreClient::Attempt StoreClient::connect(const StoreTarget& target, const StoreIdentity& identity, Deadline patience,
                                          Deadline deadline) {
  Attempt attempt;
  auto socket = target.tcp ? connect_tcp(*target.tcp) : connect_abstract(target.unix_name, patience);
  if (!socket) {
    attempt.status = socket.status();
    return attempt;
  }
  if (!target.tcp && !peer_is_our_user(socket->get())) {
    attempt.answer = Answer::foreign;
    attempt.status = failure(ErrorCode::protocol, "not a gradsync store of this user");
    return attempt;
  }
  if (!poll_one(socket->get(), POLLOUT, patience)) {
    attempt.status = failure(ErrorCode::unavailable, "cannot connect: no answer");
    return attempt;
  }
  if (Status outcome = connect_outcome(socket->get()); !outcome) {
    attempt.status = failure(ErrorCode::unavailable, "cannot connect: {}", outcome.message);
    return attempt;
  }
  std::unique_ptr<StoreClient> client(new StoreClient(std::move(*socket), identity));
  attempt.status = client->open(patience, deadline, attempt);
  if (attempt.status) {
    attempt.answer = Answer::welcome;
    attempt.client = std::move(client);
  }
  return attempt;
}

Status StoreClient::open(Deadline patience, Deadline deadline, Attempt& attempt) {
  // A send that fails is not the last word: what the other end said before it closed tells more.
  if (Status sent = send_all(socket_.get(), kOpening, patience); !sent && sent.code == ErrorCode::timeout) return sent;
  if (Status greeted = hear_greeting(patience, attempt); !greeted) return greeted;
  const store_protocol::Hello hello{identity_.job, identity_.rank, identity_.size, identity_.process};
  if (Status sent = request(Request::hello, encode(hello), deadline); !sent) return sent;
  return hear_welcome(deadline, attempt);
}

Status StoreClient::hear_greeting(Deadline deadline, Attempt& attempt) {
  std::string heard;
  while (heard != kGreeting) {
    const bool ours = heard == kGreeting.substr(0, heard.size());
    if (!ours && heard.find('\n') != std::string::npos) break;
    std::string more(ours ? kGreeting.size() - heard.size() : kQuotedMax, '\0');
    // Not ours: the rest of the line is worth a moment, to quote it.
    const Deadline patience = ours ? deadline : earlier(deadline, Deadline::after(kLastWords));
    const bool ready = poll_one(socket_.get(), POLLIN, patience);
    const ssize_t got = ready ? ::recv(socket_.get(), more.data(), more.size(), 0) : -1;
    if (got < 0 && ready && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0 && ready && heard.empty()) attempt.answer = Answer::closed;
    if (got <= 0 && heard.empty())
      return ready ? failure(ErrorCode::unavailable, "the connection was closed without an answer")
                   : failure(ErrorCode::unavailable, "connected, but there was no answer");
    if (got <= 0) break;
    heard.append(more, 0, static_cast<std::size_t>(got));
    if (heard.size() > kQuotedMax) break;
  }
  if (heard == kGreeting) return {};
  attempt.answer = Answer::foreign;
  return failure(ErrorCode::protocol, "not a gradsync store (it answered \"{}\")", first_line(heard));
}

Status StoreClient::hear_welcome(Deadline deadline, Attempt& attempt) {
  const auto cut = next_frame(deadline);
  if (!cut) return failure(ErrorCode::unavailable, "{}", cut.status().message);
  if (cut->type == static_cast<std::uint8_t>(Reply::refused)) {
    const auto refused = decode_refused(cut->body);
    if (refused) {
      attempt.answer = refused->reason == Refusal::other_job ? Answer::other_job : Answer::refused;
      return failure(ErrorCode::invalid_argument, "{}", refused->why);
    }
  }
  const auto number = cut->type == static_cast<std::uint8_t>(Reply::welcome) ? decode_number(cut->body) : std::nullopt;
  if (!number) {
    attempt.answer = Answer::foreign;
    return failure(ErrorCode::protocol, "the store's answer has type {} and {} bytes, expected a welcome", cut->type,
                   cut->body.size());
  }
  job_ = *number;
  return {};
}

Status StoreClient::request(Request type, const std::string& body, Deadline deadline) {
  return send_all(socket_.get(), frame(type, body), deadline);
}

std::size_t StoreClient::frame_bytes_max() const {
  return limits::store_key_bytes_max + limits::store_value_bytes_max + 64 +
         std::size_t{identity_.size} * (kBlobBytesMax + 2);
}

Result<Cut> StoreClient::next_frame(Deadline deadline) {
  for (;;) {
    bool bad = false;
    if (auto cut = cut_frame(buffer_, frame_bytes_max(), bad)) return std::move(*cut);
    if (bad)
      return failure(ErrorCode::protocol, "the store sent a frame beyond the limit of {} bytes", frame_bytes_max());
    const std::size_t had = buffer_.size();
    buffer_.resize(had + kReadBytes);
    const ssize_t got = ::recv(socket_.get(), buffer_.data() + had, kReadBytes, MSG_DONTWAIT);
    const int error = errno;
    buffer_.resize(had + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got > 0 || (got < 0 && error == EINTR)) continue;
    if (got == 0) return failure(ErrorCode::unavailable, "the store closed the connection");
    if (error != EAGAIN)
      return failure(ErrorCode::unavailable, "the connection to the store broke: {}", errno_text(error));
    if (!poll_one(socket_.get(), POLLIN, deadline)) return failure(ErrorCode::timeout, "no answer from the store");
  }
}

Result<Cut> StoreClient::wait_for(Reply type, Reply or_type, Deadline deadline) {
  for (;;) {
    auto cut = next_frame(deadline);
    if (!cut || cut->type == static_cast<std::uint8_t>(type) || cut->type == static_cast<std::uint8_t>(or_type))
      return cut;
    if (cut->type != static_cast<std::uint8_t>(Reply::gone)) continue;
    const auto gone = decode_gone(cut->body);
    if (!gone) return failure(ErrorCode::protocol, "the store sent a malformed frame");
    return peer_failure(ErrorCode::peer_lost, static_cast<int>(gone->rank), "rank {} left the rendezvous: {}",
                        gone->rank, gone->why);
  }
}

Result<std::vector<std::string>> StoreClient::gather(const std::string& name, const std::string& blob,
                                                     Deadline deadline) {
  GRADSYNC_CHECK(blob.size() <= kBlobBytesMax && name.size() <= limits::store_key_bytes_max);
  if (Status sent = request(Request::gather, encode(Named{name, blob}), deadline); !sent) return sent;
  auto cut = wait_for(Reply::gathered, Reply::gathered, before(deadline, kAskBefore));
  if (!cut && cut.status().code == ErrorCode::timeout) {
    if (Status sent = request(Request::who, encode(Named{name, {}}), deadline); !sent) return sent;
    cut = wait_for(Reply::gathered, Reply::present, deadline);  // the last rank may just have come
  }
  if (!cut) return cut.status();
  if (cut->type == static_cast<std::uint8_t>(Reply::present)) return missing(*cut);
  auto blobs = decode_blobs(cut->body, identity_.size);
  if (!blobs || blobs->name != name)
    return failure(ErrorCode::protocol, "the store's answer to gather {} is malformed", name);
  return std::move(blobs->blobs);
}

Status StoreClient::missing(const Cut& answer) const {
  const auto present = decode_gone(answer.body);
  if (!present) return failure(ErrorCode::protocol, "the store sent a malformed frame");
  const int peer = present->rank < identity_.size ? static_cast<int>(present->rank) : -1;
  return peer_failure(ErrorCode::timeout, peer, "{}", present->why);
}

Status StoreClient::put(const std::string& name, const std::string& value, Deadline deadline) {
  GRADSYNC_CHECK(name.size() <= limits::store_key_bytes_max && value.size() <= limits::store_value_bytes_max);
  return request(Request::put, encode(Named{name, value}), deadline);
}

Result<std::string> StoreClient::get(const std::string& name, Deadline deadline) {
  if (Status sent = request(Request::get, encode(Named{name, {}}), deadline); !sent) return sent;
  const auto cut = wait_for(Reply::value, Reply::value, deadline);
  if (!cut) return cut.status();
  auto named = decode_named(cut->body);
  if (!named || named->name != name)
    return failure(ErrorCode::protocol, "the store's answer to get {} is malformed", name);
  return std::move(named->value);
}

void StoreClient::fail(const std::string& why) {
  (void)request(Request::fail, why.substr(0, kTextBytesMax), Deadline::after(kLastWords));
}

bool StoreClient::collect(std::vector<Loss>& out) {
  for (;;) {
    const auto cut = next_frame(Deadline::after(Nanoseconds(0)));
    if (!cut) return cut.status().code == ErrorCode::timeout;
    if (cut->type != static_cast<std::uint8_t>(Reply::gone)) continue;
    if (const auto gone = decode_gone(cut->body)) out.push_back({gone->rank, gone->why});
  }
}

void StoreClient::say_goodbye() { (void)request(Request::goodbye, {}, Deadline::after(kLastWords)); }

}  // namespace gradsync
