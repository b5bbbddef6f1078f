// A worker that only joins and says what it saw: for trying launchers. It joins twice, or as often as its argument says.
// Exit code 0 if each group is whole.
#include <cstdio>
#include <cstdlib>

#include "comm/rendezvous.hpp"

int main(int count, char** arguments) {
  using namespace gradsync;
  try {
    const Options options = Options::from_environment();
    std::uint64_t last = 0;
    std::shared_ptr<Endpoint> first;
    const int times = count > 1 ? std::atoi(arguments[1]) : 2;
    for (int again = 0; again < times; ++again) {
      const auto joined = join(options);
      throw_if_failed(joined.status());
      const Membership& membership = joined->membership;
      if (membership.places.size() != membership.size || membership.hosts.size() != membership.size ||
          membership.job == last)
        return 2;
      if (again == 0) first = joined->endpoint;
      last = membership.job;
      std::uint32_t hosts = 0;
      for (std::uint32_t host : membership.hosts) hosts = host + 1 > hosts ? host + 1 : hosts;
      std::printf("joined rank %u of %u on %u host%s at %s\n", membership.rank, membership.size, hosts,
                  hosts == 1 ? "" : "s", text(membership.places[membership.rank].tcp).c_str());
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
