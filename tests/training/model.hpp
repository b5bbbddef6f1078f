// A model without layers: parameters, and gradients that are small whole numbers of (rank, step, parameter, element), so that
// means over up to 8 ranks are exact in every dtype but for a division.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "gradsync/gradient_sync.hpp"
#include "values.hpp"
#include "world.hpp"

namespace gradsync::training {

using cases::in_world;
using cases::Medium;
using cases::World;

std::vector<Parameter> small_model();  // scalars, odd sizes, something larger than a cache line
std::vector<Parameter> mixed_model();  // all four dtypes
std::vector<Parameter> many_parameters(std::size_t count);

// Whole, at most 12 in absolute value.
double value_of(std::uint64_t step, std::size_t parameter, std::size_t element, int rank);

void fill(const GradientSync& sync, std::size_t parameter, std::uint64_t step, int rank);

// fill() and ready() for all, from the last parameter to the first.
void backward(GradientSync& sync, std::uint64_t step, int rank);

// sum of weight(r) * value_of(…, r) / sum of weight(r); equal weights if empty.
double mean_of(std::uint64_t step, std::size_t parameter, std::size_t element, int world,
               const std::vector<double>& weights = {});

// Every element of every dense gradient is that mean, but for `ulps` roundings of the dtype relative to 12.
void expect_means(const GradientSync& sync, std::uint64_t step, int world, const std::vector<double>& weights = {},
                  double ulps = 1);

void expect_means_of(const GradientSync& sync, std::size_t parameter, std::uint64_t step, int world,
                     const std::vector<double>& weights = {}, double ulps = 1);

// All bytes of all dense gradients, in the order of the parameters.
std::vector<std::byte> bytes_of(const GradientSync& sync);

// The code and peer of what `body` throws; ok if nothing.
template <class Body>
Status thrown_by(Body&& body) {
  try {
    body();
  } catch (const Error& error) { return error.status(); }
  return {};
}

}  // namespace gradsync::training
