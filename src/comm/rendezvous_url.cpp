#include "comm/rendezvous_url.hpp"

#include <charconv>

#include "comm/store_protocol.hpp"

namespace gradsync {
namespace {

constexpr std::size_t kNameBytesMax = 100;  // of an abstract socket

template <class... Args>
Status bad(std::string_view url, fmt::format_string<Args...> format, Args&&... args) {
  return failure(ErrorCode::invalid_argument,
                 "rendezvous \"{}\": {}; expected tcp://HOST:PORT/JOB, host0://HOST:PORT/JOB, unix-abstract://NAME/JOB "
                 "or file:///PATH",
                 url, fmt::format(format, std::forward<Args>(args)...));
}

Status parse_host_and_port(std::string_view authority, RendezvousUrl& out) {
  const auto colon = authority.rfind(':');
  if (colon == std::string_view::npos) return bad(out.text, "there is no port");
  std::string_view host = authority.substr(0, colon);
  const std::string_view digits = authority.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos) return bad(out.text, "an IPv6 address needs brackets");
  if (host.empty()) return bad(out.text, "there is no host");
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
  const bool zero_fits = out.kind == RendezvousUrl::Kind::pmi;
  if (error != std::errc() || end != digits.data() + digits.size() || (out.port == 0 && !zero_fits))
    return bad(out.text, "port \"{}\" is not a number from 1 to 65535", digits);
  out.host = host;
  return {};
}

}  // namespace

Result<RendezvousUrl> parse_rendezvous(std::string_view url) {
  using Kind = RendezvousUrl::Kind;
  RendezvousUrl out;
  out.text = url;
  const auto separator = url.find("://");
  if (separator == std::string_view::npos) return bad(url, "there is no scheme");
  const std::string_view scheme = url.substr(0, separator);
  const std::string_view rest = url.substr(separator + 3);
  if (scheme == "tcp") out.kind = Kind::tcp;
  else if (scheme == "host0") out.kind = Kind::host0;
  else if (scheme == "unix-abstract") out.kind = Kind::unix_abstract;
  else if (scheme == "file") out.kind = Kind::file;
  else if (scheme == "pmi") out.kind = Kind::pmi;
  else return bad(url, "unknown scheme \"{}\"", scheme);

  if (out.kind == Kind::file) {
    if (!rest.starts_with('/') || rest.size() < 2) return bad(url, "the path is not absolute");
    out.name = rest;
    return out;
  }
  const auto slash = rest.find('/');
  const std::string_view authority = rest.substr(0, slash);
  out.job = slash == std::string_view::npos ? "" : rest.substr(slash + 1);
  if (out.job.size() > store_protocol::kJobBytesMax)
    return bad(url, "the job's name has {} bytes, at most {} are possible", out.job.size(),
               store_protocol::kJobBytesMax);
  if (out.kind == Kind::unix_abstract) {
    if (authority.empty() || authority.size() > kNameBytesMax)
      return bad(url, "the socket's name has {} bytes, expected 1 to {}", authority.size(), kNameBytesMax);
    out.name = authority;
    return out;
  }
  if (Status status = parse_host_and_port(authority, out); !status) return status;
  return out;
}

}  // namespace gradsync
