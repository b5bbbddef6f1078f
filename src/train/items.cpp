#include "train/items.hpp"

#include <algorithm>
#include <utility>

namespace gradsync {

std::vector<std::uint32_t> dense_of(std::span<const Parameter> parameters, std::span<const std::uint32_t> order) {
  std::vector<std::uint32_t> dense;
  for (std::uint32_t p : order)
    if (!parameters[p].sparse) dense.push_back(p);
  return dense;
}

std::vector<Item> launch_items(std::span<const Parameter> parameters, std::span<const std::uint32_t> order,
                               const BucketPlan& plan) {
  std::vector<std::size_t> position(parameters.size());
  for (std::size_t at = 0; at < order.size(); ++at) position[order[at]] = at;
  std::vector<Item> items;
  std::size_t next = 0;  // of the order
  const auto add_sparse_before = [&](std::size_t end) {
    for (; next < end; ++next)
      if (parameters[order[next]].sparse) items.push_back({true, order[next]});
  };
  for (std::uint32_t b = 0; b < plan.buckets.size(); ++b) {
    std::size_t last = 0;
    for (const BucketPiece& piece : plan.buckets[b].pieces) last = std::max(last, position[piece.parameter]);
    add_sparse_before(last);
    items.push_back({false, b});
  }
  add_sparse_before(order.size());
  return items;
}

ItemsOf items_of(std::size_t parameters, const BucketPlan& plan, std::span<const Item> items) {
  ItemsOf of(parameters);
  const auto add = [&](std::uint32_t parameter, std::uint32_t item) {
    if (of[parameter].empty() || of[parameter].back() != item) of[parameter].push_back(item);
  };
  for (std::uint32_t k = 0; k < items.size(); ++k) {
    if (items[k].sparse) {
      add(items[k].index, k);
      continue;
    }
    for (const BucketPiece& piece : plan.buckets[items[k].index].pieces) add(piece.parameter, k);
    for (std::uint32_t parameter : plan.buckets[items[k].index].begun) add(parameter, k);
  }
  return of;
}

Layout make_layout(PlanQuery query, std::vector<std::uint32_t> order) {
  Layout layout{std::move(order), {}, {}, {}};
  const std::vector<std::uint32_t> dense = dense_of(query.parameters, layout.order);
  query.order = dense;
  layout.plan = plan_buckets(query);
  layout.items = launch_items(query.parameters, layout.order, layout.plan);
  layout.held_by = items_of(query.parameters.size(), layout.plan, layout.items);
  return layout;
}

}  // namespace gradsync
