// Where a job meets, as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace gradsync {

struct RendezvousUrl {
  enum class Kind : std::uint8_t {
    tcp,            // tcp://HOST:PORT/JOB            a store that somebody else (the launcher) serves
    host0,          // host0://HOST:PORT/JOB          rank 0 serves it on the first free of PORT … PORT+16
    unix_abstract,  // unix-abstract://NAME/JOB       rank 0 serves it; all ranks on one host
    file,           // file:///PATH
    pmi,            // pmi://fd:N, pmi://HOST:PORT/ID  rank 0 serves it and tells where by PMI
  };
  Kind kind = Kind::tcp;
  std::string text;  // as given
  std::string host;  // tcp, host0, pmi ("fd": a descriptor's number is in port)
  std::uint16_t port = 0;
  std::string name;  // unix_abstract: socket name; file: path
  std::string job;   // pmi: id
};

inline constexpr std::uint16_t kHostedPorts = 17;  // that host0 tries

// invalid_argument: names the URL, what is wrong with it, and the known forms.
Result<RendezvousUrl> parse_rendezvous(std::string_view url);

}  // namespace gradsync
