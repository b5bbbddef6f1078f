#include "data/text_data.hpp"

#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>

#include "data/data_error.hpp"

namespace training {
namespace {

std::string read_file(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) throw DataError(path, "no such file", text_package);
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw DataError(path, "cannot be read", text_package);
  if (text.empty()) throw DataError(path, "is empty", text_package);
  if (text.find('\0') != std::string::npos) throw DataError(path, "holds a zero byte, expected text", text_package);
  return text;
}

}  // namespace

std::string load_text(const std::filesystem::path& folder, std::span<const char* const> names) {
  std::string text;
  for (const char* name : names) text += read_file(folder / name);
  return text;
}

Tokeniser::Tokeniser(std::string_view text) {
  token_of_.fill(-1);
  std::set<unsigned char> used;
  for (const char c : text) used.insert(static_cast<unsigned char>(c));
  for (const unsigned char c : used) {
    token_of_[c] = size();
    characters_ += static_cast<char>(c);
  }
}

torch::Tensor Tokeniser::encode(std::string_view text) const {
  auto tokens = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kInt64);
  auto* to = tokens.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < text.size(); ++i) {
    to[i] = token_of_[static_cast<unsigned char>(text[i])];
    if (to[i] < 0)
      throw std::out_of_range("character " + std::to_string(i) + " (byte " +
                              std::to_string(static_cast<unsigned char>(text[i])) + ") is not in the vocabulary");
  }
  return tokens;
}

std::string Tokeniser::decode(std::span<const std::int64_t> tokens) const {
  std::string text;
  for (const std::int64_t token : tokens) text += characters_.at(static_cast<std::size_t>(token));
  return text;
}

TextWindows::TextWindows(torch::Tensor tokens, std::int64_t context) : tokens_(std::move(tokens)), context_(context) {
  if (context < 1 || tokens_.size(0) <= context)
    throw std::invalid_argument("windows of " + std::to_string(context) + " tokens from a text of " +
                                std::to_string(tokens_.size(0)));
}

std::size_t TextWindows::size() const { return static_cast<std::size_t>((tokens_.size(0) - 1) / context_); }

TextBatch TextWindows::batch(std::span<const std::size_t> indices) const {
  std::vector<torch::Tensor> inputs, targets;
  for (const std::size_t index : indices) {
    const std::int64_t begin = static_cast<std::int64_t>(index) * context_;
    inputs.push_back(tokens_.narrow(0, begin, context_));
    targets.push_back(tokens_.narrow(0, begin + 1, context_));
  }
  return {torch::stack(inputs), torch::stack(targets)};
}

}  // namespace training
