// What a step sends, in order: the buckets of a plan and, where their turn comes, the sparse gradients.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/bucket_plan.hpp"

namespace gradsync {

struct Item {
  bool sparse = false;
  std::uint32_t index = 0;  // of the bucket, or of the sparse parameter
};

// The items that hold a part of a parameter's gradient, ascending.
using ItemsOf = std::vector<std::vector<std::uint32_t>>;

// The parameters that are not sparse, in the given order.
std::vector<std::uint32_t> dense_of(std::span<const Parameter> parameters, std::span<const std::uint32_t> order);

// `order`: of all parameters, when ready. A sparse one goes as soon as those before it can have gone.
std::vector<Item> launch_items(std::span<const Parameter> parameters, std::span<const std::uint32_t> order,
                               const BucketPlan& plan);
// Empty for a parameter that no bucket begins.
ItemsOf items_of(std::size_t parameters, const BucketPlan& plan, std::span<const Item> items);

// A plan with all that follows from it.
struct Layout {
  std::vector<std::uint32_t> order;  // of all parameters
  BucketPlan plan;
  std::vector<Item> items;
  ItemsOf held_by;
};
// `query.order` is filled in here.
Layout make_layout(PlanQuery query, std::vector<std::uint32_t> order);

}  // namespace gradsync
