def write_report(model, frame, output):
    raise NotImplementedError
