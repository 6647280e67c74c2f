FROM python:3.11-slim
# --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu: without CUDA
ARG PIP_EXTRA_INDEX_URL
RUN apt-get update && apt-get install -y --no-install-recommends libseccomp2 && rm -rf /var/lib/apt/lists/*
WORKDIR /harness
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY harness harness
COPY model_wrappers model_wrappers
COPY tables tables
RUN pip install --no-cache-dir --constraint constraints.txt .
WORKDIR /work
ENTRYPOINT ["fef-dllm"]
CMD ["--help"]
