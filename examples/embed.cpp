/*
 * embed.cpp - the C API from C++: handles in unique_ptr, errors as exceptions.
 *
 *   embed MODEL TEXT...
 *
 * The library throws no exceptions; class `Model` is a complete wrapper. Prints the similarity of
 * each text to the first.
 */
#include <gpuserve/gpuserve.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

class Model
{
  public:
    explicit Model(const std::string &name)
    {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_model *opened = nullptr;

        check(gpuserve_model_open(&opened, nullptr, name.c_str(), nullptr, &error), error);
        handle_.reset(opened);
    }

    std::size_t dim() const
    {
        return gpuserve_model_dim(handle_.get());
    }

    /* One row of dim() floats per text. */
    std::vector<float> embed(const std::vector<std::string> &texts) const
    {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        std::vector<const char *> pointers;
        std::vector<float> rows(texts.size() * dim());

        for (const std::string &text : texts)
            pointers.push_back(text.c_str());
        check(gpuserve_embed(handle_.get(), pointers.data(), pointers.size(), rows.data(),
                             rows.size(), nullptr, &error),
              error);
        return rows;
    }

  private:
    struct Close {
        void operator()(gpuserve_model *model) const
        {
            gpuserve_model_close(&model);
        }
    };

    static void check(gpuserve_status status, const gpuserve_error &error)
    {
        if (status != GPUSERVE_OK)
            throw std::runtime_error(std::string(error.message) + "\n" + error.hint);
    }

    std::unique_ptr<gpuserve_model, Close> handle_;
};

} // namespace

int main(int argc, char **argv)
{
    if (argc < 3) {
        std::fprintf(stderr, "usage: embed MODEL TEXT...\n");
        return 2;
    }
    try {
        const Model model(argv[1]);
        const std::vector<std::string> texts(argv + 2, argv + argc);
        const std::vector<float> rows = model.embed(texts);

        for (std::size_t i = 0; i < texts.size(); i++) {
            const float likeness =
                gpuserve_dot(rows.data(), rows.data() + i * model.dim(), model.dim());

            std::printf("%.3f  %s\n", static_cast<double>(likeness), texts[i].c_str());
        }
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return 1;
    }
    return 0;
}
