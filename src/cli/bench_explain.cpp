#include "cli/bench_explain.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/random.hpp"
#include "comm/inspect.hpp"

namespace gradsync::cli {
namespace {

double gbit(double s_per_byte) { return s_per_byte > 0 ? 8e-9 / s_per_byte : 0; }

std::string parts_text(const Choice& choice) {
  std::string text(name_of(choice.algorithm));
  if (choice.segments > 1) text += fmt::format(", {} segments", choice.segments);
  if (!choice.shards.empty()) {
    double sum = 0;
    for (std::uint32_t weight : choice.shards) sum += weight;
    text += ", shards of";
    for (std::uint32_t weight : choice.shards) text += fmt::format(" {:.1f}", 100 * weight / sum);
    text += " %";
  }
  return text;
}

// The fastest of each algorithm, with equal and with uneven shards.
std::vector<Choice> best_of_each(const std::vector<Choice>& ranked) {
  std::vector<Choice> best;
  std::set<std::pair<Algorithm, bool>> seen;
  for (const Choice& choice : ranked)
    if (seen.insert({choice.algorithm, choice.shards.empty()}).second) best.push_back(choice);
  return best;
}

std::string link_line(std::string_view name, const Link& measured, const Link& planned) {
  return fmt::format("  {:<9} alpha {:>9.2f} us, beta {:>8.3f} Gbit/s    for plans {:>9.2f} us, {:>8.3f} Gbit/s\n",
                     name, 1e6 * measured.alpha_s, gbit(measured.beta_s_per_byte), 1e6 * planned.alpha_s,
                     gbit(planned.beta_s_per_byte));
}

std::string network_text(const Explanation& e) {
  const std::size_t hosts = std::set(e.hosts.begin(), e.hosts.end()).size();
  std::string text = fmt::format("{} rank{} on {} host{}, measured now:\n", e.ranks, e.ranks == 1 ? "" : "s",
                                 std::max<std::size_t>(hosts, 1), hosts > 1 ? "s" : "");
  text += link_line("inside", e.measured.inside, e.planned.inside);
  text += link_line("between", e.measured.between, e.planned.between);
  text += fmt::format("  gamma {:.3f} GB/s, overhead {:.2f} us    for plans {:.3f} GB/s, {:.2f} us\n",
                      1e-9 / e.measured.gamma_s_per_byte, 1e6 * e.measured.overhead_s,
                      1e-9 / e.planned.gamma_s_per_byte, 1e6 * e.planned.overhead_s);
  for (std::size_t h = 0; h < e.ports.size(); ++h) {
    text += fmt::format("  host {:<4} out {:>8.3f} Gbit/s, in {:>8.3f} Gbit/s", h, gbit(e.ports[h].out_s_per_byte),
                        gbit(e.ports[h].in_s_per_byte));
    if (h < e.planned.ports.size())
      text += fmt::format("    for plans {:>8.3f}, {:>8.3f}", gbit(e.planned.ports[h].out_s_per_byte),
                          gbit(e.planned.ports[h].in_s_per_byte));
    text += "\n";
  }
  if (!e.ports.empty() && e.planned.ports.empty()) text += "  The hosts are as good as alike: parts are equal.\n";
  return text;
}

std::string choice_text(const Explanation& e) {
  std::string text = fmt::format("\n{} of {} bytes{}\n", name_of(e.collective), e.bytes,
                                 e.collective == Collective::all_reduce ? "" : " (of the message, or of a block)");
  bool found = false;
  for (const Choice& c : e.candidates) {
    const bool is = c.algorithm == e.chosen.algorithm && c.segments == e.chosen.segments && c.shards == e.chosen.shards;
    found = found || is;
    text += fmt::format("  {:>12.1f} us {} {}{}\n", 1e6 * c.seconds, c.simulated ? " " : "~", parts_text(c),
                        is ? "    <- auto" : "");
  }
  if (!found) text += fmt::format("  auto: {}\n", parts_text(e.chosen));
  return text;
}

nlohmann::ordered_json json_of(const Link& link) {
  return {{"alpha_s", link.alpha_s}, {"beta_s_per_byte", link.beta_s_per_byte}};
}

nlohmann::ordered_json json_of(const std::vector<HostPort>& ports) {
  auto list = nlohmann::ordered_json::array();
  for (const HostPort& port : ports)
    list.push_back({{"out_s_per_byte", port.out_s_per_byte}, {"in_s_per_byte", port.in_s_per_byte}});
  return list;
}

nlohmann::ordered_json json_of(const Network& network) {
  return {{"inside", json_of(network.inside)},
          {"between", json_of(network.between)},
          {"gamma_s_per_byte", network.gamma_s_per_byte},
          {"overhead_s", network.overhead_s},
          {"ports", json_of(network.ports)}};
}

nlohmann::ordered_json json_of(const Choice& choice) {
  nlohmann::ordered_json object{
      {"algorithm", name_of(choice.algorithm)}, {"segments", choice.segments}, {"shards", choice.shards}};
  if (choice.seconds > 0) object["forecast_s"] = choice.seconds;
  return object;
}

}  // namespace

Explanation explained(Communicator& communicator, Collective collective, std::uint64_t bytes, const Network& measured) {
  Explanation e;
  e.collective = collective;
  e.bytes = bytes;
  e.ranks = static_cast<std::uint32_t>(communicator.size());
  e.hosts = communicator.hosts();
  e.planned = Inspector::network(communicator);
  e.measured = measured;
  e.ports = Inspector::ports(communicator);
  auto ranked = rank_candidates({collective, bytes, e.ranks, e.hosts}, e.planned);
  throw_if_failed(ranked.status());
  e.candidates = best_of_each(*ranked);
  const Recipe recipe = Inspector::chosen(communicator, collective, bytes);
  e.chosen = {recipe.algorithm, recipe.segments, 0, false, recipe.shards};
  for (const Choice& c : *ranked)
    if (c.algorithm == recipe.algorithm && c.segments == recipe.segments && c.shards == recipe.shards) {
      e.chosen = c;
      for (Choice& best :
           e.candidates)  // what was chosen for the sizes about this one, rather than what is best for it
        if (best.algorithm == c.algorithm && best.shards == c.shards) best = c;
    }
  return e;
}

std::string text_of(const std::vector<Explanation>& explanations) {
  std::string text;
  for (const Explanation& e : explanations) {
    if (text.empty()) text = network_text(e);
    text += choice_text(e);
  }
  return text;
}

std::string json_of(const std::vector<Explanation>& explanations) {
  std::string text;
  for (const Explanation& e : explanations) {
    auto candidates = nlohmann::ordered_json::array();
    for (const Choice& c : e.candidates) candidates.push_back(json_of(c));
    const nlohmann::ordered_json object{{"explain", name_of(e.collective)},
                                        {"bytes", e.bytes},
                                        {"ranks", e.ranks},
                                        {"hosts", e.hosts},
                                        {"measured", json_of(e.measured)},
                                        {"planned", json_of(e.planned)},
                                        {"ports", json_of(e.ports)},
                                        {"candidates", candidates},
                                        {"auto", json_of(e.chosen)}};
    text += object.dump() + "\n";
  }
  return text;
}

bool all_say(Communicator& communicator, const std::string& text) {
  std::uint64_t hash = text.size();
  for (const char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
  std::array<std::uint64_t, 2> both = {hash, ~hash};
  communicator.all_reduce(view(both), ReduceOp::max);
  return both[0] == ~both[1];
}

}  // namespace gradsync::cli
