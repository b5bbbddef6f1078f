// The picture of a schedule: a lane for each rank, time downwards, an arrow for each message.
#include <algorithm>
#include <map>

#include "cli/drawing.hpp"

namespace gradsync::cli {
namespace {

constexpr double lane_width = 124, margin = 60, top = 124, round_gap = 62, spread = 14, bottom = 30;
constexpr double letter_width = 6.4, head_gap = 14;
constexpr std::string_view combine_colour = "#c2410c", assign_colour = "#1d4ed8", ink = "#1f2937", faint = "#9ca3af";

struct Point {
  double x = 0, y = 0;
};

// Where each round begins, given how many messages a rank sends or receives in it.
class Page {
 public:
  explicit Page(const Drawing& drawing) : ranks_(drawing.recipe.world), starts_(drawing.rounds + 1, top) {
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint32_t> leaving, arriving;
    std::vector<double> most(drawing.rounds, 1);
    for (const Message& m : drawing.messages) {
      double& n = most[m.round - 1];
      n = std::max({n, double(++leaving[{m.round, m.from}]), double(++arriving[{m.round, m.to}])});
    }
    for (std::size_t i = 0; i < most.size(); ++i) starts_[i + 1] = starts_[i] + round_gap + (2 * most[i] - 2) * spread;
    arriving_ = std::move(arriving);
  }

  double x(std::uint32_t rank) const { return margin + lane_width * (rank + 0.5); }
  double y(std::uint64_t round) const { return starts_[round]; }
  double width() const { return std::max(2 * margin + lane_width * ranks_, 860.0); }
  double height() const { return starts_.back() + bottom; }
  // The k-th message (from 0) that a rank sends, or receives, in a round.
  Point leaves(const Message& m, std::uint32_t k) const { return {x(m.from), y(m.round - 1) + 8 + k * spread}; }
  Point arrives(const Message& m, std::uint32_t k) const {
    return {x(m.to), y(m.round) - 8 - (arriving_.at({m.round, m.to}) - 1 - k) * spread};
  }

 private:
  std::uint32_t ranks_;
  std::vector<double> starts_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint32_t> arriving_;
};

std::string text_at(Point at, std::string_view text, std::string_view colour, std::string_view more = "") {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" fill="{}"{}>{}</text>)"
                     "\n",
                     at.x, at.y, colour, more, text);
}

std::string hosts_of(const Drawing& drawing, const Page& page) {
  std::string svg;
  const auto& hosts = drawing.recipe.hosts;
  for (std::size_t first = 0; first < hosts.size();) {
    std::size_t end = first;
    while (end < hosts.size() && hosts[end] == hosts[first]) ++end;
    const double left = page.x(static_cast<std::uint32_t>(first)) - lane_width / 2 + 3;
    svg += fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="8" fill="#f3f4f6"/>)"
                       "\n",
                       left, top - 46, lane_width * double(end - first) - 6, page.height() - top + 36);
    svg += text_at({left + 8, top - 32}, fmt::format("host {}", hosts[first]), faint);
    first = end;
  }
  return svg;
}

std::string lanes_of(const Drawing& drawing, const Page& page) {
  std::string svg;
  for (std::uint32_t r = 0; r < drawing.recipe.world; ++r) {
    svg += fmt::format(R"(<line x1="{0:.1f}" y1="{1}" x2="{0:.1f}" y2="{2:.1f}" stroke="{3}" stroke-width="1.2"/>)"
                       "\n",
                       page.x(r), top - 6, page.height() - bottom + 6, faint);
    svg +=
        text_at({page.x(r), top - 14}, fmt::format("rank {}", r), ink, R"( text-anchor="middle" font-weight="bold")");
  }
  for (std::uint64_t round = 1; round <= drawing.rounds; ++round) {
    const double y = page.y(round);
    svg += fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="#e5e7eb"/>)"
                       "\n",
                       margin - 34, y, page.width() - 20, y);
    svg += text_at({12, (page.y(round - 1) + y) / 2 + 4}, std::to_string(round), faint, R"( font-weight="bold")");
  }
  return svg;
}

std::string arrow(Point from, Point to, const Message& m) {
  const std::string_view colour = m.mode == Mode::combine ? combine_colour : assign_colour;
  const std::string_view head = m.mode == Mode::combine ? "combine" : "assign";
  std::string svg = fmt::format(
      R"svg(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" stroke-width="1.4" stroke-opacity="0.8" marker-end="url(#{})"><title>rank {} to rank {}, chunks {}</title></line>)svg"
      "\n",
      from.x, from.y, to.x, to.y, colour, head, m.from, m.to, m.chunks);
  return svg;
}

// The chunks, just before the head, where arrows of one sender have parted; on a white edge, so that lines do not hide it.
std::string label(Point from, Point to, const Message& m) {
  const double wide = letter_width * double(m.chunks.size()), length = std::max(1.0, std::abs(to.x - from.x));
  const double back = std::min(head_gap + wide / 2, 0.6 * length) / length;
  const Point at{to.x + (from.x - to.x) * back, to.y + (from.y - to.y) * back + 4};
  const std::string_view colour = m.mode == Mode::combine ? combine_colour : assign_colour;
  return text_at(at, m.chunks, "white", R"( text-anchor="middle" font-size="11" stroke="white" stroke-width="3.5")") +
         text_at(at, m.chunks, colour, R"( text-anchor="middle" font-size="11")");
}

std::string arrows_of(const Drawing& drawing, const Page& page) {
  std::string lines, labels;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint32_t> left, arrived;
  for (const Message& m : drawing.messages) {
    const Point from = page.leaves(m, left[{m.round, m.from}]++), to = page.arrives(m, arrived[{m.round, m.to}]++);
    lines += arrow(from, to, m);
    labels += label(from, to, m);
  }
  return lines + labels;
}

// All local steps of a rank at one clock are one mark; hovering tells them.
std::string local_of(const Drawing& drawing, const Page& page) {
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::pair<bool, std::string>> marks;
  for (const LocalStep& step : drawing.local) {
    auto& [combines, words] = marks[{step.rank, step.round}];
    combines = combines || step.mode == Mode::combine;
    words +=
        fmt::format("{}{} {}", words.empty() ? "" : ", ", step.mode == Mode::combine ? "reduce" : "copy", step.chunks);
  }
  std::string svg;
  for (const auto& [where, mark] : marks)
    svg += fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="8" height="8" fill="{}"><title>rank {}: {}</title></rect>)"
                       "\n",
                       page.x(where.first) - 4, page.y(where.second) - 4, mark.first ? combine_colour : assign_colour,
                       where.first, mark.second);
  return svg;
}

std::string legend() {
  std::string svg;
  const auto entry = [&](double x, std::string_view colour, std::string_view head, std::string_view words) {
    svg += fmt::format(
        R"svg(<line x1="{}" y1="52" x2="{}" y2="52" stroke="{}" stroke-width="1.6" marker-end="url(#{})"/>)svg"
        "\n",
        x, x + 26, colour, head);
    svg += text_at({x + 34, 56}, words, ink);
  };
  entry(20, combine_colour, "combine", "received and combined");
  entry(220, assign_colour, "assign", "received as it is");
  svg += fmt::format(R"(<rect x="390" y="48" width="8" height="8" fill="{}"/>)"
                     "\n",
                     assign_colour);
  svg += text_at({406, 56}, "local copy or reduce", ink);
  return svg + text_at({570, 56}, "numbers at arrows: chunks; at the left: round", ink);
}

std::string marker(std::string_view name, std::string_view colour) {
  return fmt::format(
      R"(<marker id="{}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,1 L10,5 L0,9 z" fill="{}"/></marker>)"
      "\n",
      name, colour);
}

}  // namespace

std::string svg_of(const Drawing& drawing) {
  const Page page(drawing);
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="DejaVu Sans, Verdana, sans-serif" font-size="12">)"
      "\n<defs>\n",
      page.width(), page.height());
  svg += marker("combine", combine_colour) + marker("assign", assign_colour) + "</defs>\n";
  svg += R"(<rect width="100%" height="100%" fill="white"/>)"
         "\n";
  svg += text_at({20, 28}, title_of(drawing), ink, R"( font-size="16" font-weight="bold")");
  svg +=
      legend() + hosts_of(drawing, page) + lanes_of(drawing, page) + arrows_of(drawing, page) + local_of(drawing, page);
  return svg + "</svg>\n";
}

}  // namespace gradsync::cli
